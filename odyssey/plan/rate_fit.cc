// SPDX-License-Identifier: Apache-2.0
#include "odyssey/plan/rate_fit.h"

#include <algorithm>
#include <cmath>

#include "odyssey/base/error.h"

namespace odyssey {
namespace {

double predicted(const std::vector<double>& counts, const std::vector<double>& rates) {
  double sum = 0;
  for (size_t j = 0; j < rates.size(); ++j) sum += counts[j] * rates[j];
  return sum;
}

}  // namespace

// One rate at a time, each at its best for the others and not below 0, until nothing moves: the
// squares form a convex bowl, so there is one lowest point.
RateFit fit_rates(const std::vector<std::vector<double>>& counts,
                  const std::vector<double>& seconds, double pull) {
  constexpr int kMostRounds = 200000;
  constexpr double kStill = 1e-12;
  ODYSSEY_CHECK(!counts.empty() && counts.size() == seconds.size(), "{} calls, {} times",
                counts.size(), seconds.size());
  const size_t calls = counts.size(), terms = counts[0].size();
  // Rows of counts / seconds, whose products with the rates should be 1.
  std::vector<std::vector<double>> rows = counts;
  for (size_t i = 0; i < calls; ++i) {
    for (double& count : rows[i]) count /= seconds[i];
  }
  RateFit fit;
  fit.rates.assign(terms, 0);
  std::vector<double> rest(calls, 1);  // 1 - rows * rates
  for (int round = 0; round < kMostRounds; ++round) {
    double moved = 0;
    for (size_t j = 0; j < terms; ++j) {
      double up = pull * pull * (1 - fit.rates[j]), squares = pull * pull;
      for (size_t i = 0; i < calls; ++i) {
        up += rows[i][j] * rest[i];
        squares += rows[i][j] * rows[i][j];
      }
      if (squares == 0) continue;
      const double before = fit.rates[j];
      fit.rates[j] = std::max(0.0, before + up / squares);
      const double change = fit.rates[j] - before;
      for (size_t i = 0; i < calls; ++i) rest[i] -= change * rows[i][j];
      moved = std::max(moved, std::fabs(change) * std::sqrt(squares));
    }
    if (moved < kStill) break;
  }
  fit.quality.samples = static_cast<int>(calls);
  for (size_t i = 0; i < calls; ++i) {
    const double error = std::fabs(predicted(counts[i], fit.rates) / seconds[i] - 1);
    fit.quality.mean_error += error / static_cast<double>(calls);
    fit.quality.largest_error = std::max(fit.quality.largest_error, error);
  }
  return fit;
}

}  // namespace odyssey
