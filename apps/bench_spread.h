// SPDX-License-Identifier: Apache-2.0
// Spread: what a benchmark tells of the runs of one row.
#pragma once
#include <algorithm>
#include <vector>

namespace odyssey {

struct Spread {
  double median = 0, least = 0, most = 0;
};

// Zeros where there are no values.
inline Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {median, values.front(), values.back()};
}

}  // namespace odyssey
