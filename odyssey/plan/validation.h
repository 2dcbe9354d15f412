// SPDX-License-Identifier: Apache-2.0
// Measured tables, and how well the model explains them. A table is a file of configs/validation:
//
//   title: ...                       one line
//   source: ...                      where the figures were published
//   measures: step_seconds           see Measure
//   hardware: tpu-v5p-64             and any other key of a run, common to all rows
//   rows:
//     - max_target_length=65536 context_parallel_strategy=ring ... measured=1.68
//
// A row is the words one would give to `odyssey plan`, and the measured figure.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "odyssey/plan/cost.h"

namespace odyssey {

enum class Measure {
  kStepSeconds,                       // step_seconds
  kTokensPerSecond,                   // tokens_per_second: of one chip
  kModelTeraflops,                    // model_tflops: of one chip, by MaxText's formula
  kAttentionForwardPerSecond,         // attention_forward_per_second: calls of one layer
  kAttentionForwardBackwardPerSecond  // attention_forward_backward_per_second
};
std::string_view name_of(Measure measure);

struct Cell {
  std::string label;  // "usp 16x4 65536" and the words of the row that say more
  std::string group;  // equal for cells that differ by strategy and layout only
  std::string strategy;
  Job job;
  Counts counts;
  double measured = 0;
};

struct Table {
  std::string path, title, source;
  Measure measure = Measure::kStepSeconds;
  std::vector<Cell> cells;
};

// Throws UserError that names file, row and word.
Table read_table(const std::string& path);
// Those of configs/validation, in order of name.
std::vector<std::string> validation_files();

// The model's figure for a cell, in the unit of the table.
double predict(const Cell& cell, Measure measure, const Calibration& calibration);

struct Agreement {
  double mean_error = 0, largest_error = 0;  // of |predicted / measured - 1|
  int pairs = 0, ordered_pairs = 0;          // pairs of a group that differ by more than 1 %
  double largest_regret = 0;                 // measured: the model's choice against the best
};
// predicted[i] belongs to cells[i].
Agreement agreement(const Table& table, const std::vector<double>& predicted);

}  // namespace odyssey
