// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/rms_norm.h"

#include <functional>

#include "odyssey/kernels/testing.h"

namespace odyssey {
namespace {

using testing::Grid;

template <class T>
std::vector<double> as_double(const std::vector<T>& values) {
  std::vector<double> result;
  for (T value : values) result.push_back(to_float(value));
  return result;
}

template <class T>
std::vector<double> row_of(const Grid<T>& grid, int64_t row, int64_t width) {
  std::vector<double> result;
  for (int64_t i = 0; i < width; ++i) result.push_back(grid.at(row, i));
  return result;
}

// One row of the formula.
std::vector<double> norm(const std::vector<double>& x, const std::vector<double>& w,
                         const RmsNormOptions& options) {
  double squares = 0;
  for (double value : x) squares += value * value;
  const double inverse = 1 / std::sqrt(squares / static_cast<double>(x.size()) + options.epsilon);
  std::vector<double> y;
  for (size_t i = 0; i < x.size(); ++i) {
    y.push_back(x[i] * inverse * ((options.add_one ? 1 : 0) + w[i]));
  }
  return y;
}

double loss(const std::vector<double>& x, const std::vector<double>& w,
            const RmsNormOptions& options, const std::vector<double>& dy) {
  const std::vector<double> y = norm(x, w, options);
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
  return sum;
}

// d loss / d which[i] by central differences, in double.
double slope(std::vector<double>& which, size_t i, const std::function<double()>& value) {
  constexpr double kStep = 1e-5;
  const double middle = which[i];
  which[i] = middle + kStep;
  const double above = value();
  which[i] = middle - kStep;
  const double below = value();
  which[i] = middle;
  return (above - below) / (2 * kStep);
}

template <class T>
class RmsNorm : public ::testing::Test {};
TYPED_TEST_SUITE(RmsNorm, testing::StorageTypes);

TYPED_TEST(RmsNorm, ForwardEqualsTheFormula) {
  using T = TypeParam;
  for (bool add_one : {false, true}) {
    for (int64_t rows : {0, 1, 3, 40}) {
      for (int64_t width : {1, 5, 64, 257}) {
        const RmsNormOptions options{1e-3f, add_one};
        Grid<T> x(rows, width, 3, 1), y(rows, width, 2, 2);
        const std::vector<T> w = testing::random_values<T>(width, 3);
        std::vector<float> inverse(static_cast<size_t>(rows));
        rms_norm(x.view(), w, options, y.view(), inverse);
        for (int64_t r = 0; r < rows; ++r) {
          const std::vector<double> expected = norm(row_of(x, r, width), as_double(w), options);
          for (int64_t i = 0; i < width; ++i) testing::expect_near(y.view()(r, i), expected[i]);
        }
        EXPECT_TRUE(y.gap_is_untouched());
      }
    }
  }
}

TYPED_TEST(RmsNorm, BackwardEqualsFiniteDifferences) {
  using T = TypeParam;
  for (bool add_one : {false, true}) {
    for (bool accumulate : {false, true}) {
      for (int64_t width : {1, 5, 66}) {
        constexpr int64_t kRows = 19;  // more than one piece of the fixed order
        const RmsNormOptions options{1e-2f, add_one};
        Grid<T> x(kRows, width, 1, 1), y(kRows, width, 0, 2), dy(kRows, width, 2, 4);
        Grid<T> dx(kRows, width, 3, 5), before(kRows, width, 3, 5);
        const std::vector<T> w = testing::random_values<T>(width, 3);
        std::vector<float> inverse(kRows), dw(static_cast<size_t>(width), 0.5f);
        rms_norm(x.view(), w, options, y.view(), inverse);
        rms_norm_backward(dy.view(), x.view(), w, options, inverse, accumulate, dx.view(), dw);
        std::vector<double> weights = as_double(w), dw_expected(static_cast<size_t>(width), 0.5);
        for (int64_t r = 0; r < kRows; ++r) {
          std::vector<double> in = row_of(x, r, width);
          const std::vector<double> d = row_of(dy, r, width);
          const auto value = [&] { return loss(in, weights, options, d); };
          for (size_t i = 0; i < in.size(); ++i) {
            const double gradient = slope(in, i, value) + (accumulate ? before.at(r, i) : 0);
            testing::expect_near(dx.view()(r, i), gradient, 2);
            dw_expected[i] += slope(weights, i, value);
          }
        }
        for (size_t i = 0; i < dw.size(); ++i) EXPECT_NEAR(dw[i], dw_expected[i], 2e-5);
        EXPECT_TRUE(dx.gap_is_untouched());
      }
    }
  }
}

// The heads of a fused [T, (H + 2K) D] product: queries are rows of D inside wider tokens.
TYPED_TEST(RmsNorm, NormsEveryHeadInsideAFusedProduct) {
  using T = TypeParam;
  constexpr int64_t kTokens = 7, kHeads = 3, kSize = 6, kFused = 5 * kSize;
  const RmsNormOptions options;
  std::vector<T> fused = testing::random_values<T>(kTokens * kFused, 1);
  const std::vector<T> w = testing::random_values<T>(kSize, 3);
  const View<T, 3> heads(fused.data(), {kTokens, kHeads, kSize}, {kFused, kSize, 1});
  std::vector<T> y(kTokens * kHeads * kSize), dense(y.size()), dx(y.size()), dense_dx(y.size());
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t i = 0; i < kHeads * kSize; ++i)
      dense[t * kHeads * kSize + i] = fused[t * kFused + i];
  }
  std::vector<float> inverse(kTokens * kHeads), dense_inverse(inverse.size()), dw(kSize),
      dense_dw(kSize);
  const View<T, 3> out(y.data(), {kTokens, kHeads, kSize});
  const View<T, 2> dense_view(dense.data(), {kTokens * kHeads, kSize});
  std::vector<T> dense_y(y.size());
  rms_norm(heads, w, options, out, inverse);
  rms_norm(dense_view, w, options, View<T, 2>(dense_y.data(), dense_view.extents()), dense_inverse);
  EXPECT_TRUE(testing::same_bits(y, dense_y));
  rms_norm_backward(out, heads, w, options, inverse, false, View<T, 3>(dx.data(), out.extents()),
                    dw);
  rms_norm_backward(View<T, 2>(y.data(), dense_view.extents()), dense_view, w, options, inverse,
                    false, View<T, 2>(dense_dx.data(), dense_view.extents()), dense_dw);
  EXPECT_TRUE(testing::same_bits(dx, dense_dx));
  EXPECT_TRUE(testing::same_bits(dw, dense_dw));
}

TYPED_TEST(RmsNorm, GivesTheSameBitsAtAnyThreadCountAndInPlace) {
  using T = TypeParam;
  constexpr int64_t kRows = 1500, kWidth = 30;
  const std::vector<T> w = testing::random_values<T>(kWidth, 3);
  Grid<T> dy(kRows, kWidth, 0, 4);
  std::vector<float> inverse(kRows);
  testing::expect_same_at_any_thread_count([&] {
    std::vector<T> x = testing::random_values<T>(kRows * kWidth, 1);
    const View<T, 2> view(x.data(), {kRows, kWidth});
    rms_norm(view, w, {}, view, inverse);
    return x;
  });
  Grid<T> x(kRows, kWidth, 0, 1), dx(kRows, kWidth, 0, 2);
  testing::expect_same_at_any_thread_count([&] {
    std::vector<float> dw(kWidth);
    rms_norm_backward(dy.view(), x.view(), w, {}, inverse, false, dx.view(), dw);
    return dw;
  });
}

TYPED_TEST(RmsNorm, WithTheSumInFrontHasTheBitsOfTwoPasses) {
  using T = TypeParam;
  for (int64_t rows : {0, 1, 40}) {
    for (int64_t width : {1, 5, 257}) {
      const RmsNormOptions options{1e-3f, true};
      Grid<T> x(rows, width, 1, 1), sum(rows, width, 2, 2), y(rows, width, 3, 3);
      Grid<T> two_sum(rows, width, 2, 2), two_y(rows, width, 3, 3);
      const std::vector<T> w = testing::random_values<T>(width, 4);
      std::vector<float> inverse(static_cast<size_t>(rows)), two_inverse(inverse.size());
      add_rms_norm<T>(x.view(), sum.view(), w, options, y.view(), inverse);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < width; ++i) {
          T& value = two_sum.view()(r, i);
          value = T(to_float(value) + to_float(x.view()(r, i)));
        }
      }
      rms_norm<T>(two_sum.view(), w, options, two_y.view(), two_inverse);
      EXPECT_TRUE(testing::same_bits(sum.values(), two_sum.values()));
      EXPECT_TRUE(testing::same_bits(y.values(), two_y.values()));
      EXPECT_TRUE(testing::same_bits(inverse, two_inverse));
    }
  }
}

TYPED_TEST(RmsNorm, ARowOfZerosStaysZero) {
  using T = TypeParam;
  std::vector<T> x(8), y(8, T(1.0f)), dx(8), dy(8, T(1.0f)), w(8, T(1.0f));
  std::vector<float> inverse(1), dw(8);
  const View<T, 2> in(x.data(), {1, 8});
  rms_norm(in, w, {1e-5f, false}, View<T, 2>(y.data(), {1, 8}), inverse);
  rms_norm_backward(View<T, 2>(dy.data(), {1, 8}), in, w, {1e-5f, false}, inverse, false,
                    View<T, 2>(dx.data(), {1, 8}), dw);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(to_float(y[i]), 0);
    EXPECT_EQ(dw[i], 0);
    EXPECT_NEAR(to_float(dx[i]), 1 / std::sqrt(1e-5), 1);
  }
}

}  // namespace
}  // namespace odyssey
