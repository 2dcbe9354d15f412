// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/activation.h"

#include <numbers>

#include "odyssey/kernels/exponential.h"
#include "odyssey/kernels/testing.h"

namespace odyssey {
namespace {

using testing::Grid;

double function(GatedKind kind, double x) {
  if (kind == GatedKind::kSilu) return x / (1 + std::exp(-x));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

double slope(GatedKind kind, double x) {
  constexpr double kStep = 1e-5;
  return (function(kind, x + kStep) - function(kind, x - kStep)) / (2 * kStep);
}

TEST(VectorExp, IsGoodToTwoTenMillionthsOverTheWholeRange) {
  for (double x = -87.2; x < 88.3; x += 0.000917) {
    const float rounded = static_cast<float>(x);
    const double expected = std::exp(static_cast<double>(rounded));
    ASSERT_NEAR(vector_exp(rounded) / expected, 1, 2e-7) << x;
  }
  EXPECT_EQ(vector_exp(0.0f), 1.0f);
}

TEST(VectorExp, KeepsTheEndsOfTheRangeAndNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(vector_exp(-infinity), 0.0f);
  EXPECT_EQ(vector_exp(-1e30f), 0.0f);
  EXPECT_EQ(vector_exp(infinity), infinity);
  EXPECT_EQ(vector_exp(1e30f), infinity);
  EXPECT_TRUE(std::isnan(vector_exp(std::numeric_limits<float>::quiet_NaN())));
}

template <class T>
class GatedActivation : public ::testing::Test {};
TYPED_TEST_SUITE(GatedActivation, testing::StorageTypes);

TYPED_TEST(GatedActivation, EqualsTheFormulasInDouble) {
  using T = TypeParam;
  for (GatedKind kind : {GatedKind::kSilu, GatedKind::kGelu}) {
    for (int64_t rows : {0, 1, 5}) {
      for (int64_t width : {1, 7, 64, 131}) {
        Grid<T> gate_up(rows, 2 * width, 3, 1), out(rows, width, 1, 2), dout(rows, width, 2, 3);
        Grid<T> gradient(rows, 2 * width, 5, 4);
        gated_activation(kind, gate_up.view(), out.view());
        gated_activation_backward(kind, dout.view(), gate_up.view(), gradient.view());
        for (int64_t t = 0; t < rows; ++t) {
          for (int64_t f = 0; f < width; ++f) {
            const double gate = gate_up.at(t, f), up = gate_up.at(t, width + f), d = dout.at(t, f);
            testing::expect_near(out.view()(t, f), function(kind, gate) * up);
            testing::expect_near(gradient.view()(t, f), d * up * slope(kind, gate));
            testing::expect_near(gradient.view()(t, width + f), d * function(kind, gate));
          }
        }
        EXPECT_TRUE(out.gap_is_untouched() && gradient.gap_is_untouched());
      }
    }
  }
}

TYPED_TEST(GatedActivation, TheGradientMayReplaceItsInput) {
  using T = TypeParam;
  Grid<T> gate_up(4, 38, 0, 1), in_place(4, 38, 0, 1), dout(4, 19, 0, 2), gradient(4, 38, 0, 3);
  gated_activation_backward(GatedKind::kGelu, dout.view(), gate_up.view(), gradient.view());
  gated_activation_backward(GatedKind::kGelu, dout.view(), in_place.view(), in_place.view());
  for (int64_t t = 0; t < 4; ++t) {
    for (int64_t c = 0; c < 38; ++c) EXPECT_EQ(in_place.at(t, c), gradient.at(t, c));
  }
}

TYPED_TEST(GatedActivation, StaysFiniteForHugeGates) {
  using T = TypeParam;
  for (GatedKind kind : {GatedKind::kSilu, GatedKind::kGelu}) {
    for (float gate : {-1e30f, -200.0f, -88.5f, 88.5f, 200.0f, 1e30f}) {
      std::vector<T> gate_up{T(gate), T(1.0f)}, dout{T(1.0f)}, out(1), gradient(2);
      const View<T, 2> input(gate_up.data(), {1, 2});
      gated_activation(kind, input, View<T, 2>(out.data(), {1, 1}));
      gated_activation_backward(kind, View<T, 2>(dout.data(), {1, 1}), input,
                                View<T, 2>(gradient.data(), {1, 2}));
      EXPECT_NEAR(to_float(out[0]), gate > 0 ? to_float(T(gate)) : 0.0f, 1e-6);
      EXPECT_NEAR(to_float(gradient[0]), gate > 0 ? 1 : 0, 1e-6);
    }
  }
}

}  // namespace
}  // namespace odyssey
