// SPDX-License-Identifier: Apache-2.0
// For the tests of this folder: random tensors that own their memory, comparison with double
// results.
#pragma once
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "odyssey/base/parallel_for.h"
#include "odyssey/base/random.h"
#include "odyssey/kernels/input.h"

namespace odyssey::testing {

template <class T>
std::vector<T> random_values(int64_t size, uint64_t seed, double deviation = 1) {
  const Random random(seed, 11);
  std::vector<T> values(static_cast<size_t>(size));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = T(static_cast<float>(deviation * random.normal(i)));
  }
  return values;
}

// A matrix of random numbers whose rows stand `gap` elements apart; the gap holds 77, to be left
// alone.
template <class T>
class Grid {
 public:
  Grid(int64_t rows, int64_t columns, int64_t gap, uint64_t seed)
      : rows_(rows),
        columns_(columns),
        stride_(columns + gap),
        values_(random_values<T>(rows * (columns + gap) + 1, seed)) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = columns; c < stride_; ++c) {
        values_[static_cast<size_t>(r * stride_ + c)] = T(77.0f);
      }
    }
  }
  View<T, 2> view() { return {values_.data(), {rows_, columns_}, {stride_, 1}}; }
  double at(int64_t r, int64_t c) const {
    return to_float(values_[static_cast<size_t>(r * stride_ + c)]);
  }
  bool gap_is_untouched() const {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = columns_; c < stride_; ++c) {
        if (at(r, c) != 77) return false;
      }
    }
    return true;
  }
  const std::vector<T>& values() const { return values_; }

 private:
  int64_t rows_, columns_, stride_;
  std::vector<T> values_;
};

// Half a unit in the last place of bf16 is up to 2^-8 of the value; fp32 sums of a few thousand
// terms are good to 1e-5.
template <class T>
double relative_error_allowed() {
  return std::is_same_v<T, bf16> ? 1.01 / 256 : 1e-5;
}

template <class T>
void expect_near(T actual, double expected, double scale = 1) {
  const double value = to_float(actual);
  EXPECT_LE(std::abs(value - expected),
            relative_error_allowed<T>() * std::abs(expected) + 1e-5 * scale)
      << value << " instead of " << expected;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Runs body with 1, 2, 3 and 5 threads and expects the same vector of bits each time.
template <class Body>
void expect_same_at_any_thread_count(const Body& body) {
  const int before = thread_count();
  set_thread_count(1);
  const auto expected = body();
  for (int threads : {2, 3, 5}) {
    set_thread_count(threads);
    EXPECT_TRUE(same_bits(body(), expected)) << threads << " threads";
  }
  set_thread_count(before);
}

using StorageTypes = ::testing::Types<float, bf16>;

}  // namespace odyssey::testing
