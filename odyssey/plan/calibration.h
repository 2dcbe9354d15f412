// SPDX-License-Identifier: Apache-2.0
// Calibration: the constants that no data sheet tells, one set for a family of chips, read from
// configs/calibration/NAME.yml. `odyssey plan --fit` makes such files.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace odyssey {

// What the constants were fitted on: confidence.h tells by it how far a prediction is from that.
struct FittedOn {
  int64_t cells = 0;                          // 0: not fitted
  std::vector<std::string> machines;          // files of configs/hardware
  int64_t least_length = 0, most_length = 0;  // tokens of a row
  std::vector<std::string> placements;
  std::vector<std::string> unmeasured;  // fitted constants that no cell depends on
};

struct Calibration {
  std::string name;
  // Fitted.
  double attention_efficiency = 0;   // share of the peak inside a tile of attention
  double collective_efficiency = 0;  // share of the links in gathers and exchanges
  double memory_efficiency = 0;      // share of the memory's speed in passes over tensors
  double ring_step_seconds = 0;      // start and end of one ring step of one pass
  double fixed_seconds = 0;          // of a step: optimizer, embedding, dispatch
  // Known from elsewhere.
  double linear_efficiency = 0;      // share of the peak in products with weights
  double tile_overhead_seconds = 0;  // one step of an attention kernel's grid
  // Blocks that a mask hides from all ranks ahead do not travel: so does the trainer here. Else
  // every block goes all the way round.
  bool trims_hidden_blocks = false;
  FittedOn fitted_on;
};

// A constant by its name in files.
struct CalibrationField {
  std::string_view name;
  double Calibration::*value;
  bool is_fitted;
  double least, most;  // what is plausible; a fit stays inside
};
std::span<const CalibrationField> calibration_fields();

// Reads configs/calibration/NAME.yml, or the file where `name` ends in .yml. Throws UserError.
Calibration load_calibration(const std::string& name);

// The text of such a file. `source`: what it was fitted on, one comment line each.
std::string calibration_text(const Calibration& calibration, std::span<const std::string> source);

}  // namespace odyssey
