// SPDX-License-Identifier: Apache-2.0
// Also run with ONEDNN_MAX_CPU_ISA=AVX2 and ODYSSEY_MAX_ISA=avx2, where oneDNN has no bf16 product.
#include "odyssey/kernels/matmul.h"

#include <array>
#include <thread>

#include "odyssey/kernels/matmul_ref.h"
#include "odyssey/kernels/testing.h"

namespace odyssey {
namespace {

using testing::Grid;

struct Shape {
  int64_t tokens, inputs, outputs;
};
constexpr std::array<Shape, 8> kShapes{{{1, 1, 1},
                                        {1, 64, 48},
                                        {3, 5, 7},
                                        {17, 33, 65},
                                        {64, 64, 64},
                                        {37, 1, 9},
                                        {129, 96, 31},
                                        {2, 300, 1}}};
constexpr std::array<int64_t, 2> kGaps{0, 5};

template <class T>
class Matmul : public ::testing::Test {};
TYPED_TEST_SUITE(Matmul, testing::StorageTypes);

// The result is rounded once more where the old value is added to a rounded product, hence twice
// the error of a single rounding is allowed for bf16.
template <class T>
void expect_equal(Grid<T>& actual, Grid<T>& expected, int64_t inner) {
  const View<T, 2> a = actual.view();
  for (int64_t r = 0; r < a.extent(0); ++r) {
    for (int64_t c = 0; c < a.extent(1); ++c) {
      const double allowed =
          (std::is_same_v<T, bf16> ? 1.0 / 128 : 1e-6) * std::abs(expected.at(r, c)) +
          2e-6 * std::sqrt(static_cast<double>(inner));
      ASSERT_NEAR(actual.at(r, c), expected.at(r, c), allowed) << r << ", " << c;
    }
  }
  EXPECT_TRUE(actual.gap_is_untouched());
}

TYPED_TEST(Matmul, ForwardEqualsPlainLoops) {
  using T = TypeParam;
  for (const Shape& s : kShapes) {
    for (int64_t gap : kGaps) {
      Grid<T> x(s.tokens, s.inputs, gap, 1), w(s.outputs, s.inputs, gap, 2);
      Grid<T> y(s.tokens, s.outputs, gap, 3), y_ref(s.tokens, s.outputs, gap, 3);
      linear(x.view(), w.view(), y.view());
      reference::linear<T>(x.view(), w.view(), y_ref.view());
      expect_equal(y, y_ref, s.inputs);
      Grid<float> logits(s.tokens, s.outputs, gap, 3), logits_ref(s.tokens, s.outputs, gap, 3);
      linear_to_fp32<T>(x.view(), w.view(), logits.view());
      reference::linear<T>(x.view(), w.view(), logits_ref.view());
      expect_equal(logits, logits_ref, s.inputs);
    }
  }
}

TYPED_TEST(Matmul, BackwardEqualsPlainLoopsWithAndWithoutTheOldValue) {
  using T = TypeParam;
  for (const Shape& s : kShapes) {
    for (int64_t gap : kGaps) {
      for (bool accumulate : {false, true}) {
        Grid<T> x(s.tokens, s.inputs, gap, 1), w(s.outputs, s.inputs, gap, 2),
            dy(s.tokens, s.outputs, gap, 4);
        Grid<T> dx(s.tokens, s.inputs, gap, 5), dx_ref(s.tokens, s.inputs, gap, 5);
        linear_backward_input(dy.view(), w.view(), dx.view(), accumulate);
        reference::linear_backward_input<T>(dy.view(), w.view(), dx_ref.view(), accumulate);
        expect_equal(dx, dx_ref, s.outputs);
        Grid<float> dw(s.outputs, s.inputs, gap, 6), dw_ref(s.outputs, s.inputs, gap, 6);
        linear_backward_weight<T>(dy.view(), x.view(), dw.view(), accumulate);
        reference::linear_backward_weight<T>(dy.view(), x.view(), dw_ref.view(), accumulate);
        expect_equal(dw, dw_ref, s.tokens);
      }
    }
  }
}

TYPED_TEST(Matmul, AnEmptySumIsZeroAndNoRowsAreLegal) {
  using T = TypeParam;
  Grid<T> x(0, 4, 0, 1), w(3, 4, 0, 2), y(0, 3, 0, 3), dx(0, 4, 0, 3);
  linear(x.view(), w.view(), y.view());
  linear_backward_input(y.view(), w.view(), dx.view(), true);
  Grid<float> dw(3, 4, 2, 4), kept(3, 4, 2, 4);
  linear_backward_weight<T>(y.view(), x.view(), dw.view(), true);
  EXPECT_TRUE(testing::same_bits(dw.values(), kept.values()));
  linear_backward_weight<T>(y.view(), x.view(), dw.view(), false);
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t c = 0; c < 4; ++c) EXPECT_EQ(dw.at(r, c), 0);
  }
  EXPECT_TRUE(dw.gap_is_untouched());
}

TYPED_TEST(Matmul, RefusesShapesThatDoNotFit) {
  using T = TypeParam;
  Grid<T> x(2, 4, 0, 1), w(3, 5, 0, 2), y(2, 3, 0, 3);
  EXPECT_THROW(linear(x.view(), w.view(), y.view()), std::logic_error);
}

TYPED_TEST(Matmul, GivesTheSameBitsEveryTime) {
  using T = TypeParam;
  Grid<T> x(130, 257, 0, 1), dy(130, 190, 0, 4), w(190, 257, 0, 2);
  const int before = thread_count();
  for (int threads : {1, 2}) {
    set_thread_count(threads);
    Grid<T> y(130, 190, 0, 3), y_again(130, 190, 0, 9);
    linear(x.view(), w.view(), y.view());
    linear(x.view(), w.view(), y_again.view());
    EXPECT_EQ(std::memcmp(y.view().data(), y_again.view().data(), 130 * 190 * sizeof(T)), 0);
    Grid<float> dw(190, 257, 0, 6), dw_again(190, 257, 0, 6);
    linear_backward_weight<T>(dy.view(), x.view(), dw.view(), true);
    linear_backward_weight<T>(dy.view(), x.view(), dw_again.view(), true);
    EXPECT_TRUE(testing::same_bits(dw.values(), dw_again.values()));
  }
  set_thread_count(before);
}

TYPED_TEST(Matmul, ManyRanksMayCallAtOnce) {
  using T = TypeParam;
  constexpr int kRanks = 6;
  std::array<bool, kRanks> right{};
  const auto rank = [&](int r) {
    set_thread_count(1 + r % 2);
    bool all = true;
    for (int repeat = 0; repeat < 20; ++repeat) {
      // New shapes all the time, some shared with the other ranks.
      const int64_t tokens = 5 + (repeat + r / 2) % 7;
      Grid<T> x(tokens, 40, 0, 1), w(24, 40, 0, 2), y(tokens, 24, 0, 3), y_ref(tokens, 24, 0, 3);
      linear(x.view(), w.view(), y.view());
      reference::linear<T>(x.view(), w.view(), y_ref.view());
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t o = 0; o < 24; ++o) {
          all =
              all && std::abs(y.at(t, o) - y_ref.at(t, o)) <= 1e-4 + std::abs(y_ref.at(t, o)) / 128;
        }
      }
    }
    right[static_cast<size_t>(r)] = all;
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) threads.emplace_back(rank, r);
  for (std::thread& thread : threads) thread.join();
  for (bool one : right) EXPECT_TRUE(one);
}

// More shapes than are kept: the cache is emptied on the way.
TYPED_TEST(Matmul, ForgetsOldShapes) {
  using T = TypeParam;
  for (int64_t tokens = 1; tokens <= 600; ++tokens) {
    Grid<T> x(tokens, 2, 0, 1), w(1, 2, 0, 2), y(tokens, 1, 0, 3);
    linear(x.view(), w.view(), y.view());
    const int64_t last = tokens - 1;
    const double expected = x.at(last, 0) * w.at(0, 0) + x.at(last, 1) * w.at(0, 1);
    ASSERT_NEAR(y.at(last, 0), expected, 1e-5 + std::abs(expected) / 128);
  }
}

}  // namespace
}  // namespace odyssey
