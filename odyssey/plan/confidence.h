// SPDX-License-Identifier: Apache-2.0
// Confidence: how far a prediction is from what the constants of its family were fitted on.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "odyssey/plan/fit.h"

namespace odyssey {

enum class Confidence {
  kInterpolated,  // the chip, the number of chips, the length and the placement were measured
  kExtrapolated,  // the chip was measured, but not so many of it, or not such a run
  kScaled,        // another chip of the family was measured: scaled by data sheets
  kGuessed,       // nothing of the family was measured
};
std::string_view name_of(Confidence confidence);

struct Trust {
  Confidence confidence = Confidence::kInterpolated;
  std::vector<std::string> reasons;  // sentences without a point
};

// By Calibration::fitted_on of the job.
Trust trust(const Job& job);

// What to write into a file of constants: `errors` of jackknife_errors; 0 tells that no cell
// depends on a constant.
FittedOn fitted_on(std::span<const Sample> samples, std::span<const double> errors);

}  // namespace odyssey
