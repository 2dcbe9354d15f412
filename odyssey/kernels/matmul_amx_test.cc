// SPDX-License-Identifier: Apache-2.0
// The tile products alone, whatever the dispatch rule says about a shape. Small integers make every
// sum exact, so results must equal the plain loops bit for bit.
#include "odyssey/kernels/matmul_amx.h"

#include <array>
#include <limits>
#include <thread>

#include "odyssey/base/buffer.h"
#include "odyssey/kernels/isa.h"
#include "odyssey/kernels/matmul.h"
#include "odyssey/kernels/matmul_ref.h"
#include "odyssey/kernels/testing.h"

namespace odyssey {
namespace {

using testing::Grid;

struct Shape {
  int64_t tokens, inputs, outputs;
};
// Below, at and above a tile (32), a chunk and a block (512); several blocks and panels.
constexpr std::array<Shape, 14> kShapes{{{1, 1, 1},
                                         {1, 64, 48},
                                         {3, 5, 7},
                                         {16, 16, 16},
                                         {31, 33, 65},
                                         {32, 32, 32},
                                         {64, 96, 160},
                                         {37, 1, 9},
                                         {33, 513, 31},
                                         {50, 1100, 70},
                                         {530, 40, 600},
                                         {1060, 70, 33},
                                         {40, 70, 1060},
                                         {130, 544, 530}}};
constexpr std::array<int64_t, 2> kGaps{0, 5};

class MatmulAmx : public ::testing::Test {
  void SetUp() override {
    if (detected_isa() != Isa::kAmx) GTEST_SKIP() << "this machine has no tiles";
  }
};

AmxOperand rows_of(View<const bf16, 2> m) {
  return {m.data(), m.extent(0), m.extent(1), m.stride(0), false};
}
AmxOperand transposed(View<const bf16, 2> m) {
  return {m.data(), m.extent(1), m.extent(0), m.stride(0), true};
}
template <class Out>
AmxResult result(View<Out, 2> m) {
  return {m.data(), m.extent(0), m.extent(1), m.stride(0), std::is_same_v<Out, bf16>};
}

// The gap of an input holds NaN, which would show in every result that it touched.
Grid<bf16> input(int64_t rows, int64_t columns, int64_t gap, uint64_t seed, bool integers) {
  Grid<bf16> grid(rows, columns, gap, seed);
  bf16* data = grid.view().data();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns + gap; ++c) {
      bf16& element = data[r * (columns + gap) + c];
      if (c >= columns)
        element = bf16(std::numeric_limits<float>::quiet_NaN());
      else if (integers)
        element = bf16(std::round(2 * to_float(element)));
    }
  }
  return grid;
}

template <class T>
void expect_same(Grid<T>& actual, Grid<T>& expected, int64_t inner, bool integers) {
  for (int64_t r = 0; r < actual.view().extent(0); ++r) {
    for (int64_t c = 0; c < actual.view().extent(1); ++c) {
      // Sums that differ in the last bits of fp32 may round to neighbouring bf16.
      const double allowed =
          integers ? 0
                   : (std::is_same_v<T, bf16> ? 1.0 / 128 : 1e-6) * std::abs(expected.at(r, c)) +
                         2e-6 * std::sqrt(static_cast<double>(inner));
      ASSERT_NEAR(actual.at(r, c), expected.at(r, c), allowed) << r << ", " << c;
    }
  }
  EXPECT_TRUE(actual.gap_is_untouched());
}

void check_products(const Shape& s, int64_t gap, bool integers) {
  SCOPED_TRACE(fmt::format("{} x {} x {}, gap {}", s.tokens, s.inputs, s.outputs, gap));
  Grid<bf16> x = input(s.tokens, s.inputs, gap, 1, integers);
  Grid<bf16> w = input(s.outputs, s.inputs, gap, 2, integers);
  Grid<bf16> dy = input(s.tokens, s.outputs, gap, 4, integers);
  for (bool accumulate : {false, true}) {
    Grid<bf16> dx(s.tokens, s.inputs, gap, 5), dx_ref(s.tokens, s.inputs, gap, 5);
    multiply_amx(rows_of(dy.view()), rows_of(w.view()), result(dx.view()), accumulate);
    reference::linear_backward_input<bf16>(dy.view(), w.view(), dx_ref.view(), accumulate);
    expect_same(dx, dx_ref, s.outputs, integers && !accumulate);
    Grid<float> dw(s.outputs, s.inputs, gap, 6), dw_ref(s.outputs, s.inputs, gap, 6);
    multiply_amx(transposed(dy.view()), rows_of(x.view()), result(dw.view()), accumulate);
    reference::linear_backward_weight<bf16>(dy.view(), x.view(), dw_ref.view(), accumulate);
    expect_same(dw, dw_ref, s.tokens, integers && !accumulate);
  }
  Grid<bf16> y(s.tokens, s.outputs, gap, 3), y_ref(s.tokens, s.outputs, gap, 3);
  multiply_amx(rows_of(x.view()), transposed(w.view()), result(y.view()), false);
  reference::linear<bf16>(x.view(), w.view(), y_ref.view());
  expect_same(y, y_ref, s.inputs, integers);
  Grid<float> logits(s.tokens, s.outputs, gap, 3), logits_ref(s.tokens, s.outputs, gap, 3);
  multiply_amx(rows_of(x.view()), transposed(w.view()), result(logits.view()), false);
  reference::linear<bf16>(x.view(), w.view(), logits_ref.view());
  expect_same(logits, logits_ref, s.inputs, integers);
}

TEST_F(MatmulAmx, EqualsPlainLoopsBitForBitWhereSumsAreExact) {
  for (const Shape& s : kShapes) {
    for (int64_t gap : kGaps) check_products(s, gap, true);
  }
}

TEST_F(MatmulAmx, EqualsPlainLoopsWithinOneRounding) {
  for (const Shape& s : kShapes) check_products(s, 3, false);
}

TEST_F(MatmulAmx, AlignedResultsHaveTheBitsOfUnalignedOnes) {
  constexpr int64_t kTokens = 544, kInputs = 600, kOutputs = 576;
  Grid<bf16> x(kTokens, kInputs, 0, 1), w(kOutputs, kInputs, 0, 2);
  const auto compare = [&]<class Out>(Out) {
    Buffer<Out> aligned(kTokens * kOutputs);
    Grid<Out> apart(kTokens, kOutputs, 1, 3);
    const View<Out, 2> a(aligned.data(), {kTokens, kOutputs});
    multiply_amx(rows_of(x.view()), transposed(w.view()), result(a), false);
    multiply_amx(rows_of(x.view()), transposed(w.view()), result(apart.view()), false);
    for (int64_t t = 0; t < kTokens; ++t) {
      ASSERT_EQ(std::memcmp(&a(t, 0), &apart.view()(t, 0), kOutputs * sizeof(Out)), 0) << t;
    }
  };
  compare(bf16());
  compare(float());
}

TEST_F(MatmulAmx, GivesTheSameBitsAtAnyThreadCount) {
  // From fewer panels than threads to many blocks each.
  for (const Shape& s : {Shape{700, 1030, 300}, Shape{300, 64, 2100}, Shape{40, 100, 40}}) {
    Grid<bf16> x(s.tokens, s.inputs, 3, 1), w(s.outputs, s.inputs, 0, 2);
    Grid<bf16> dy(s.tokens, s.outputs, 1, 4);
    testing::expect_same_at_any_thread_count([&] {
      Grid<bf16> y(s.tokens, s.outputs, 0, 3);
      multiply_amx(rows_of(x.view()), transposed(w.view()), result(y.view()), false);
      return y.values();
    });
    testing::expect_same_at_any_thread_count([&] {
      Grid<bf16> dx(s.tokens, s.inputs, 2, 3);
      multiply_amx(rows_of(dy.view()), rows_of(w.view()), result(dx.view()), true);
      return dx.values();
    });
    testing::expect_same_at_any_thread_count([&] {
      Grid<float> dw(s.outputs, s.inputs, 2, 3);
      multiply_amx(transposed(dy.view()), rows_of(x.view()), result(dw.view()), true);
      return dw.values();
    });
  }
}

TEST_F(MatmulAmx, ManyRanksMayCallAtOnce) {
  constexpr int kRanks = 6;
  std::array<bool, kRanks> right{};
  const auto rank = [&](int r) {
    set_thread_count(1 + r % 3);
    bool all = true;
    for (int repeat = 0; repeat < 10; ++repeat) {
      const int64_t tokens = 60 + 17 * ((repeat + r) % 5);
      Grid<bf16> x = input(tokens, 200, 0, 1, true), w = input(90, 200, 0, 2, true);
      Grid<bf16> y(tokens, 90, 0, 3), y_ref(tokens, 90, 0, 3);
      multiply_amx(rows_of(x.view()), transposed(w.view()), result(y.view()), false);
      // oneDNN in between, which has tiles of its own.
      linear(x.view(), w.view(), y_ref.view());
      reference::linear<bf16>(x.view(), w.view(), y_ref.view());
      all = all && std::memcmp(y.view().data(), y_ref.view().data(),
                               static_cast<size_t>(tokens * 90) * sizeof(bf16)) == 0;
    }
    right[static_cast<size_t>(r)] = all;
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) threads.emplace_back(rank, r);
  for (std::thread& thread : threads) thread.join();
  for (bool one : right) EXPECT_TRUE(one);
}

TEST_F(MatmulAmx, NotANumberStaysInItsRowAndColumn) {
  Grid<bf16> x = input(70, 40, 0, 1, true), w = input(50, 40, 0, 2, true);
  x.view()(69, 3) = bf16(std::numeric_limits<float>::quiet_NaN());
  w.view()(49, 39) = bf16(std::numeric_limits<float>::infinity());
  Grid<bf16> y(70, 50, 7, 3);
  multiply_amx(rows_of(x.view()), transposed(w.view()), result(y.view()), false);
  for (int64_t t = 0; t < 70; ++t) {
    for (int64_t o = 0; o < 50; ++o) {
      ASSERT_EQ(std::isfinite(y.at(t, o)), t < 69 && o < 49) << t << ", " << o;
    }
  }
  EXPECT_TRUE(y.gap_is_untouched());
}

}  // namespace
}  // namespace odyssey
