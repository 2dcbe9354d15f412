// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/cross_entropy.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "odyssey/base/error.h"
#include "odyssey/kernels/soft_cap.h"
#include "odyssey/kernels/testing.h"

namespace odyssey {
namespace {

using testing::Grid;

std::vector<double> softmax(const Grid<float>& logits, int64_t row, int64_t vocabulary) {
  double most = logits.at(row, 0), sum = 0;
  for (int64_t v = 0; v < vocabulary; ++v) most = std::max(most, logits.at(row, v));
  std::vector<double> result;
  for (int64_t v = 0; v < vocabulary; ++v) result.push_back(std::exp(logits.at(row, v) - most));
  for (double x : result) sum += x;
  for (double& x : result) x /= sum;
  return result;
}

template <class T>
class CrossEntropy : public ::testing::Test {};
TYPED_TEST_SUITE(CrossEntropy, testing::StorageTypes);

TYPED_TEST(CrossEntropy, EqualsTheFormulasInDouble) {
  using T = TypeParam;
  for (int64_t rows : {0, 1, 5}) {
    for (int64_t vocabulary : {1, 2, 33, 1024, 2500}) {
      Grid<float> logits(rows, vocabulary, 3, 1);
      Grid<T> gradient(rows, vocabulary, 1, 2);
      std::vector<int32_t> targets;
      std::vector<float> weights;
      double loss = 0, weight = 0;
      for (int64_t c = 0; c < rows; ++c) {
        targets.push_back(static_cast<int32_t>((c * 7 + 1) % vocabulary));
        weights.push_back(c == 2 ? 0.0f : 0.5f * static_cast<float>(c + 1));
        weight += weights.back();
        loss -= weights.back() * std::log(softmax(logits, c, vocabulary)[targets.back()]);
      }
      const CrossEntropySum sum = cross_entropy(logits.view(), targets, weights, gradient.view());
      EXPECT_NEAR(sum.loss, loss, 1e-5 * (1 + std::abs(loss)));
      EXPECT_DOUBLE_EQ(sum.weight, weight);
      EXPECT_EQ(sum.count, rows > 2 ? rows - 1 : rows);
      EXPECT_EQ(cross_entropy(logits.view(), targets, weights).loss, sum.loss);
      for (int64_t c = 0; c < rows; ++c) {
        const std::vector<double> p = softmax(logits, c, vocabulary);
        for (int64_t v = 0; v < vocabulary; ++v) {
          const double expected = weights[c] * (p[v] - (v == targets[c] ? 1 : 0));
          testing::expect_near(gradient.view()(c, v), expected, 0.1);
        }
      }
      EXPECT_TRUE(gradient.gap_is_untouched());
    }
  }
}

TYPED_TEST(CrossEntropy, IsStableForHugeLogitsAndMaskedVocabulary) {
  using T = TypeParam;
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> logits{1e4f, 1e4f, -1e4f, -infinity, -2e4f, -2e4f, -1e30f, -infinity};
  std::vector<T> gradient(8);
  const std::vector<int32_t> targets{0, 1};
  const std::vector<float> weights{1, 1};
  const CrossEntropySum sum = cross_entropy(View<float, 2>(logits.data(), {2, 4}), targets, weights,
                                            View<T, 2>(gradient.data(), {2, 4}));
  EXPECT_NEAR(sum.loss, 2 * std::log(2.0), 1e-6);
  const std::vector<float> expected{-0.5f, 0.5f, 0, 0, 0.5f, -0.5f, 0, 0};
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(to_float(gradient[i]), expected[i], 1e-6);
}

TYPED_TEST(CrossEntropy, RowsOfWeightZeroAreNotLookedAt) {
  using T = TypeParam;
  std::vector<float> logits(6, std::numeric_limits<float>::quiet_NaN());
  std::vector<T> gradient(6, T(9.0f));
  const std::vector<int32_t> targets{-100, 5000};
  const std::vector<float> weights{0, 0};
  const CrossEntropySum sum = cross_entropy(View<float, 2>(logits.data(), {2, 3}), targets, weights,
                                            View<T, 2>(gradient.data(), {2, 3}));
  EXPECT_EQ(sum.loss, 0);
  EXPECT_EQ(sum.count, 0);
  for (T value : gradient) EXPECT_EQ(to_float(value), 0.0f);
}

TEST(CrossEntropyFp32, NanLogitsGiveANanLoss) {
  std::vector<float> logits(40, 0.0f);
  logits[17] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<int32_t> targets{3};
  const std::vector<float> weights{1};
  EXPECT_TRUE(
      std::isnan(cross_entropy(View<float, 2>(logits.data(), {1, 40}), targets, weights).loss));
}

TEST(CrossEntropyFp32, TheGradientMayReplaceTheLogits) {
  Grid<float> logits(3, 50, 0, 1), in_place(3, 50, 0, 1), gradient(3, 50, 0, 2);
  const std::vector<int32_t> targets{0, 20, 49};
  const std::vector<float> weights{1, 0, 2};
  const double loss = cross_entropy(logits.view(), targets, weights, gradient.view()).loss;
  EXPECT_EQ(cross_entropy(in_place.view(), targets, weights, in_place.view()).loss, loss);
  for (int64_t c = 0; c < 3; ++c) {
    for (int64_t v = 0; v < 50; ++v) EXPECT_EQ(in_place.at(c, v), gradient.at(c, v));
  }
}

TEST(CrossEntropyFp32, GivesTheSameBitsAtAnyThreadCount) {
  Grid<float> logits(37, 301, 0, 1);
  std::vector<int32_t> targets(37, 5);
  const std::vector<float> weights = testing::random_values<float>(37, 2);
  testing::expect_same_at_any_thread_count(
      [&] { return std::vector<double>{cross_entropy(logits.view(), targets, weights).loss}; });
}

TEST(CrossEntropyFp32, NamesATargetOutsideTheVocabulary) {
  Grid<float> logits(3, 10, 0, 1);
  const std::vector<float> weights(3, 1.0f);
  for (int32_t wrong : {10, -1}) {
    const std::vector<int32_t> targets{1, 9, wrong};
    try {
      cross_entropy(logits.view(), targets, weights);
      FAIL() << "accepted " << wrong;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("index 2"));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("got " + std::to_string(wrong)));
    }
  }
}

TEST(SoftCap, IsTheTanhAndItsGradient) {
  constexpr float kCap = 30;
  std::vector<float> x = {0, 1e-4f, -1e-4f, 1, -3, 29, 31, -100, 1e4f, -1e30f, 0.3f, 7};
  const std::vector<float> before = x;
  const View<float, 2> logits(x.data(), {2, 6});
  soft_cap(kCap, logits);
  std::vector<float> d(x.size(), 2);
  std::vector<bf16> narrow(x.size(), bf16(2.0f));
  soft_cap_backward<float>(kCap, logits, View<float, 2>(d.data(), {2, 6}));
  soft_cap_backward<bf16>(kCap, logits, View<bf16, 2>(narrow.data(), {2, 6}));
  for (size_t i = 0; i < x.size(); ++i) {
    const double t = std::tanh(double{before[i]} / double{kCap});
    EXPECT_NEAR(x[i], double{kCap} * t, 1e-6 * double{kCap}) << before[i];
    EXPECT_NEAR(d[i], 2 * (1 - t * t), 4e-6) << before[i];
    EXPECT_NEAR(to_float(narrow[i]), 2 * (1 - t * t), 8e-3) << before[i];
  }
  EXPECT_EQ(std::signbit(x[2]), true);
}

}  // namespace
}  // namespace odyssey
