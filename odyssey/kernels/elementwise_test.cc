// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/elementwise.h"

#include <array>
#include <bit>
#include <limits>

#include "odyssey/kernels/testing.h"

namespace odyssey {
namespace {

using testing::Grid;

constexpr int64_t kSizes[] = {0, 1, 7, 1000, 70001};

template <class T>
class Elementwise : public ::testing::Test {};
TYPED_TEST_SUITE(Elementwise, testing::StorageTypes);

TYPED_TEST(Elementwise, AddsScalesAndZeroes) {
  using T = TypeParam;
  for (int64_t size : kSizes) {
    const std::vector<T> x = testing::random_values<T>(size, 1),
                         y = testing::random_values<T>(size, 2);
    std::vector<T> sum = y, scaled = x, zeroed = x;
    std::vector<float> total(x.size(), 0.125f);
    add<T>(x, sum);
    add_converted<T>(x, total);
    scale<T>(-1.7f, scaled);
    fill_zero<T>(zeroed);
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(to_float(sum[i]), to_float(T(to_float(x[i]) + to_float(y[i]))));
      ASSERT_EQ(total[i], 0.125f + to_float(x[i]));
      ASSERT_EQ(to_float(scaled[i]), to_float(T(to_float(x[i]) * -1.7f)));
      ASSERT_EQ(to_float(zeroed[i]), 0.0f);
    }
  }
}

TYPED_TEST(Elementwise, RefusesUnequalLengths) {
  using T = TypeParam;
  std::vector<T> two(2), three(3);
  EXPECT_THROW(add<T>(two, three), std::logic_error);
  EXPECT_THROW(add_bias<T>(two, View<T, 2>(three.data(), {1, 3})), std::logic_error);
}

TEST(Convert, RoundsAsBf16DoesAndKeepsBf16Exactly) {
  for (int64_t size : kSizes) {
    const std::vector<float> x = testing::random_values<float>(size, 1);
    std::vector<bf16> narrow(x.size());
    std::vector<float> wide(x.size());
    convert<float>(x, std::span(narrow));
    convert<bf16>(narrow, std::span(wide));
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(narrow[i].bits, bf16(x[i]).bits);
      ASSERT_EQ(wide[i], to_float(bf16(x[i])));
    }
  }
  std::vector<float> nan(9, std::numeric_limits<float>::quiet_NaN());
  std::vector<bf16> narrow(9);
  convert<float>(nan, std::span(narrow));
  for (bf16 value : narrow) EXPECT_TRUE(std::isnan(to_float(value)));
}

TEST(Convert, RoundsEveryUpperHalfAsTheConstructorDoes) {
  for (uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
    std::vector<float> values(65536);
    for (uint32_t upper = 0; upper < 65536; ++upper) {
      values[upper] = std::bit_cast<float>(upper << 16 | lower);
    }
    std::vector<bf16> narrow(values.size());
    convert<float>(values, std::span(narrow));
    for (size_t upper = 0; upper < 65536; ++upper) {
      ASSERT_EQ(narrow[upper].bits, bf16(values[upper]).bits) << upper << " " << lower;
    }
  }
}

TYPED_TEST(Elementwise, CopiesBetweenAnyStrides) {
  using T = TypeParam;
  constexpr int64_t kA = 2, kB = 3, kC = 5, kD = 4;
  const std::vector<T> values = testing::random_values<T>(kA * kB * kC * kD, 1);
  const View<const T, 4> from(values.data(), {kA, kB, kC, kD});
  // Dense, with gaps after rows and planes, with the last axis apart, and with axes swapped.
  const std::array<std::array<int64_t, 4>, 4> layouts{
      {{60, 20, 4, 1}, {100, 33, 6, 1}, {1, 2, 24, 6}, {20, 40, 4, 1}}};
  for (const auto& strides : layouts) {
    std::vector<T> target(250, T(77.0f));
    const View<T, 4> to(target.data(), {kA, kB, kC, kD}, strides);
    copy<T>(from, to);
    int64_t written = 0;
    for (int64_t a = 0; a < kA; ++a) {
      for (int64_t b = 0; b < kB; ++b) {
        for (int64_t c = 0; c < kC; ++c) {
          for (int64_t d = 0; d < kD; ++d) {
            EXPECT_EQ(to_float(to(a, b, c, d)), to_float(from(a, b, c, d)));
          }
        }
      }
    }
    for (T value : target) written += to_float(value) != 77.0f ? 1 : 0;
    EXPECT_EQ(written, kA * kB * kC * kD);
    std::vector<T> back(values.size());
    copy<T>(to[1], View<T, 3>(back.data(), {kB, kC, kD}));
    for (int64_t i = 0; i < kB * kC * kD; ++i) {
      EXPECT_EQ(to_float(back[i]), to_float(values[kB * kC * kD + i]));
    }
  }
}

TYPED_TEST(Elementwise, CopiesNothingFromEmptyViewsAndRefusesOtherShapes) {
  using T = TypeParam;
  std::vector<T> values(12);
  copy<T>(View<T, 3>(values.data(), {2, 0, 3}), View<T, 3>(values.data(), {2, 0, 3}));
  EXPECT_THROW(copy<T>(View<T, 3>(values.data(), {2, 2, 3}), View<T, 3>(values.data(), {2, 3, 2})),
               std::logic_error);
}

TYPED_TEST(Elementwise, CopiesLargePlanesOnSeveralThreads) {
  using T = TypeParam;
  const std::vector<T> values = testing::random_values<T>(300 * 4 * 33, 1);
  testing::expect_same_at_any_thread_count([&] {
    std::vector<T> target(values.size());
    copy<T>(View<const T, 3>(values.data(), {300, 4, 33}),
            View<T, 3>(target.data(), {300, 4, 33}, {33, 9900, 1}));
    return target;
  });
}

TYPED_TEST(Elementwise, BiasGoesToEveryRowAndItsGradientIsTheColumnSum) {
  using T = TypeParam;
  for (int64_t rows : {0, 1, 17, 130}) {
    for (int64_t columns : {1, 6, 77}) {
      Grid<T> y(rows, columns, 3, 1), before(rows, columns, 3, 1);
      const std::vector<T> bias = testing::random_values<T>(columns, 2);
      std::vector<float> gradient(bias.size(), 0.5f);
      bias_backward<T>(y.view(), gradient);
      add_bias<T>(bias, y.view());
      for (int64_t c = 0; c < columns; ++c) {
        double sum = 0.5;
        for (int64_t r = 0; r < rows; ++r) {
          sum += before.at(r, c);
          testing::expect_near(y.view()(r, c), before.at(r, c) + to_float(bias[c]));
        }
        EXPECT_NEAR(gradient[c], sum, 1e-5 * (1 + std::sqrt(static_cast<double>(rows))));
      }
      EXPECT_TRUE(y.gap_is_untouched());
    }
  }
}

TYPED_TEST(Elementwise, SumOfSquaresIsThatInDouble) {
  using T = TypeParam;
  for (int64_t size : kSizes) {
    const std::vector<T> x = testing::random_values<T>(size, 1);
    double expected = 0;
    for (T value : x) expected += static_cast<double>(to_float(value)) * to_float(value);
    EXPECT_NEAR(sum_of_squares<T>(x), expected, 1e-12 * expected);
  }
}

TYPED_TEST(Elementwise, SumsGiveTheSameBitsAtAnyThreadCount) {
  using T = TypeParam;
  const std::vector<T> x = testing::random_values<T>(2000003, 1);
  testing::expect_same_at_any_thread_count(
      [&] { return std::vector<double>{sum_of_squares<T>(x)}; });
  testing::expect_same_at_any_thread_count([&] {
    std::vector<float> gradient(13);
    bias_backward<T>(View<const T, 2>(x.data(), {150001, 13}), gradient);
    return gradient;
  });
}

}  // namespace
}  // namespace odyssey
