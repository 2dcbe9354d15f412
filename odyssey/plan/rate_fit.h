// SPDX-License-Identifier: Apache-2.0
// Finds the rates of a machine from what calls took: seconds = sum of counts times rates.
#pragma once
#include <vector>

namespace odyssey {

// How well rates explain what they were fitted to.
struct FitQuality {
  int samples = 0;
  double mean_error = 0, largest_error = 0;  // of |predicted / measured - 1|
};

struct RateFit {
  std::vector<double> rates;  // seconds of one of each count, at least 0
  FitQuality quality;
};

// counts[i]: of call i, one for each rate; seconds[i] > 0: what it took. The least squares of
// relative errors. With `pull` each rate is drawn to 1, as by one call more whose error counts
// `pull` times.
RateFit fit_rates(const std::vector<std::vector<double>>& counts,
                  const std::vector<double>& seconds, double pull = 0);

}  // namespace odyssey
