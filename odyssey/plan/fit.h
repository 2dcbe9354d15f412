// SPDX-License-Identifier: Apache-2.0
// Fits the constants of a family of chips to measured tables: least squares of log(predicted /
// measured), so that every cell counts by its relative error.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "odyssey/plan/validation.h"

namespace odyssey {

// Downhill simplex of Nelder and Mead, started twice. Deterministic.
std::vector<double> minimise(const std::function<double(const std::vector<double>&)>& function,
                             std::vector<double> start, double step);

// A cell and the unit of its figure.
struct Sample {
  const Cell* cell;
  Measure measure;
};
std::vector<Sample> samples_of(std::span<const Table> tables);

// Moves the fitted constants from `start`, in their plausible bounds; constants that no cell
// depends on stay where they are.
Calibration fit(const std::vector<Sample>& samples, const Calibration& start);

// Root of the sum of squares of what each constant moves when one cell is left out: the jackknife's
// standard error, in the order of calibration_fields(); 0 for what is not fitted.
std::vector<double> jackknife_errors(const std::vector<Sample>& samples, const Calibration& fitted);

// |predicted / measured - 1| of each sample, predicted by a fit on those for which `may_train`
// holds; each is left out of its own fit.
std::vector<double> held_out_errors(const std::vector<Sample>& samples, const Calibration& start);
// One fit on the others.
std::vector<double> transfer_errors(const std::vector<Sample>& train,
                                    const std::vector<Sample>& test, const Calibration& start);

}  // namespace odyssey
