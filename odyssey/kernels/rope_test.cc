// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/rope.h"

#include "odyssey/kernels/testing.h"

namespace odyssey {
namespace {

TEST(RopeFrequencies, ArePowersOfTheta) {
  const std::vector<float> frequencies = rope_frequencies(6, 1000);
  ASSERT_EQ(frequencies.size(), 3u);
  EXPECT_FLOAT_EQ(frequencies[0], 1);
  EXPECT_FLOAT_EQ(frequencies[1], 0.1f);
  EXPECT_FLOAT_EQ(frequencies[2], 0.01f);
}

// Llama 3.2 1B: D = 64, theta 5e5, factor 32, bands 1 and 4, original length 8192.
TEST(RopeFrequencies, HaveTheThreeBandsOfLlama3) {
  const std::vector<float> plain = rope_frequencies(64, 5e5);
  const std::vector<float> scaled = rope_frequencies(64, 5e5, {32, 1, 4, 8192});
  for (size_t i = 0; i <= 14; ++i) EXPECT_EQ(scaled[i], plain[i]) << i;
  for (size_t i = 18; i <= 31; ++i) EXPECT_NEAR(scaled[i] * 32 / plain[i], 1, 1e-6) << i;
  const auto expect_relative = [&](size_t i, double expected) {
    EXPECT_NEAR(scaled[i] / expected, 1, 1e-6) << i;
  };
  EXPECT_NEAR(plain[15] / 0.00213111954, 1, 1e-6);
  expect_relative(14, 0.00321144599);
  expect_relative(15, 0.00129054793);
  expect_relative(16, 0.000429556797);
  expect_relative(17, 9.7082878e-05);
  expect_relative(18, 1.94616382e-05);
  expect_relative(31, 9.41830673e-08);
}

TEST(RopeFrequencies, RefuseOddHeadSizes) {
  EXPECT_THROW(rope_frequencies(7, 1e4), std::logic_error);
}

template <class T>
class Rope : public ::testing::Test {};
TYPED_TEST_SUITE(Rope, testing::StorageTypes);

const std::vector<int32_t> kPositions{0, 1, 17, 8191, 131071, 5};

TYPED_TEST(Rope, TurnsThePairsOfBothHalvesByPosition) {
  using T = TypeParam;
  const int64_t tokens = static_cast<int64_t>(kPositions.size());
  for (int64_t head_size : {2, 6, 64, 132, 260}) {
    for (int64_t heads : {1, 3}) {
      const int64_t stride = heads * head_size + 3, half = head_size / 2;
      const std::vector<float> frequencies = rope_frequencies(head_size, 1e4);
      std::vector<T> x = testing::random_values<T>(tokens * stride, 1);
      const std::vector<T> before = x;
      rope(View<T, 3>(x.data(), {tokens, heads, head_size}, {stride, head_size, 1}), kPositions,
           frequencies, false);
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t h = 0; h < heads; ++h) {
          for (int64_t i = 0; i < half; ++i) {
            const int64_t low = t * stride + h * head_size + i, high = low + half;
            const float angle = static_cast<float>(kPositions[t]) * frequencies[i];
            const double c = std::cos(static_cast<double>(angle)),
                         s = std::sin(static_cast<double>(angle));
            const double a = to_float(before[low]), b = to_float(before[high]);
            testing::expect_near(x[low], a * c - b * s);
            testing::expect_near(x[high], b * c + a * s);
          }
        }
        for (int64_t i = heads * head_size; i < stride; ++i) {
          EXPECT_EQ(to_float(x[t * stride + i]), to_float(before[t * stride + i]));
        }
      }
    }
  }
}

// The backward pass is the transposed turn: <turn(x), y> = <x, turn back(y)>, and turning back
// undoes.
TYPED_TEST(Rope, InverseUndoesAndIsTheTransposedTurn) {
  using T = TypeParam;
  constexpr int64_t kHeads = 2, kSize = 8;
  const int64_t tokens = static_cast<int64_t>(kPositions.size()), size = tokens * kHeads * kSize;
  const std::vector<float> frequencies = rope_frequencies(kSize, 1e4);
  const std::vector<T> x = testing::random_values<T>(size, 1),
                       y = testing::random_values<T>(size, 2);
  std::vector<T> turned = x, back = y;
  rope(View<T, 3>(turned.data(), {tokens, kHeads, kSize}), kPositions, frequencies, false);
  rope(View<T, 3>(back.data(), {tokens, kHeads, kSize}), kPositions, frequencies, true);
  double left = 0, right = 0;
  for (int64_t i = 0; i < size; ++i) {
    left += static_cast<double>(to_float(turned[i])) * to_float(y[i]);
    right += static_cast<double>(to_float(x[i])) * to_float(back[i]);
  }
  EXPECT_NEAR(left, right, (std::is_same_v<T, bf16> ? 0.2 : 1e-4));
  rope(View<T, 3>(turned.data(), {tokens, kHeads, kSize}), kPositions, frequencies, true);
  for (int64_t i = 0; i < size; ++i) {
    EXPECT_NEAR(to_float(turned[i]), to_float(x[i]), (std::is_same_v<T, bf16> ? 0.03 : 1e-5));
  }
}

// Heads inside wider tokens, as in the model. The backward pass sums dw by tokens and not by heads,
// so that alone may differ in its last bits.
TYPED_TEST(Rope, WithTheNormInFrontHasTheBitsOfTwoPasses) {
  using T = TypeParam;
  constexpr int64_t kHeads = 3, kStride = 5;
  const int64_t tokens = static_cast<int64_t>(kPositions.size());
  for (int64_t size : {2, 6, 64, 132}) {
    const int64_t count = tokens * kStride * size;
    const auto heads = [&](std::vector<T>& values) {
      return View<T, 3>(values.data(), {tokens, kHeads, size}, {kStride * size, size, 1});
    };
    const std::vector<float> frequencies = rope_frequencies(size, 1e4);
    std::vector<T> x = testing::random_values<T>(count, 1), y(x.size()), two_y(x.size());
    const std::vector<T> w = testing::random_values<T>(size, 2);
    const RmsNormOptions options{1e-3f, true};
    std::vector<float> inverse(tokens * kHeads), two_inverse(inverse.size());
    const NormRope<T> by{w, options, kPositions, frequencies};
    rms_norm_rope<T>(heads(x), by, heads(y), inverse);
    rms_norm<T>(heads(x), w, options, heads(two_y), two_inverse);
    rope<T>(heads(two_y), kPositions, frequencies, false);
    EXPECT_TRUE(testing::same_bits(y, two_y));
    EXPECT_TRUE(testing::same_bits(inverse, two_inverse));

    std::vector<T> d = testing::random_values<T>(count, 3), two_d = d;
    std::vector<float> dw(w.size(), 0.5f), two_dw = dw;
    rms_norm_rope_backward<T>(heads(d), heads(x), by, inverse, dw);
    rope<T>(heads(two_d), kPositions, frequencies, true);
    rms_norm_backward<T>(heads(two_d), heads(x), w, options, inverse, false, heads(two_d), two_dw);
    EXPECT_TRUE(testing::same_bits(d, two_d));
    for (size_t i = 0; i < dw.size(); ++i) {
      EXPECT_NEAR(dw[i], two_dw[i], 1e-5 * (1 + std::abs(two_dw[i])));
    }
  }
}

TYPED_TEST(Rope, NormAndTurnGiveTheSameBitsAtAnyThreadCount) {
  using T = TypeParam;
  constexpr int64_t kTokens = 500, kHeads = 2, kSize = 16;
  std::vector<int32_t> positions(kTokens);
  for (int32_t t = 0; t < kTokens; ++t) positions[t] = 3 * t;
  const std::vector<float> frequencies = rope_frequencies(kSize, 1e4);
  std::vector<T> x = testing::random_values<T>(kTokens * kHeads * kSize, 1);
  const std::vector<T> w = testing::random_values<T>(kSize, 2);
  const NormRope<T> by{w, {}, positions, frequencies};
  const View<T, 3> in(x.data(), {kTokens, kHeads, kSize});
  testing::expect_same_at_any_thread_count([&] {
    std::vector<T> y(x.size()), d = testing::random_values<T>(kTokens * kHeads * kSize, 3);
    std::vector<float> inverse(kTokens * kHeads), dw(kSize);
    rms_norm_rope<T>(in, by, View<T, 3>(y.data(), in.extents()), inverse);
    rms_norm_rope_backward<T>(View<T, 3>(d.data(), in.extents()), in, by, inverse, dw);
    for (const std::vector<T>* part : {&y, &d}) {
      for (T value : *part) dw.push_back(to_float(value));
    }
    return dw;
  });
}

TYPED_TEST(Rope, RefusesOddHeadSizesAndWrongCounts) {
  using T = TypeParam;
  std::vector<T> x(14);
  const std::vector<int32_t> one{0};
  const std::vector<float> three(3), four(4);
  EXPECT_THROW(rope(View<T, 3>(x.data(), {1, 1, 7}), one, three, false), std::logic_error);
  EXPECT_THROW(rope(View<T, 3>(x.data(), {1, 1, 6}), one, four, false), std::logic_error);
  EXPECT_THROW(rope(View<T, 3>(x.data(), {2, 1, 6}), one, three, false), std::logic_error);
  rope(View<T, 3>(x.data(), {0, 1, 6}), {}, three, false);
}

// What a configuration gives for linear scaling: every wave is longer than an original length of 1.
TEST(RopeFrequencies, AnOriginalLengthOfOneDividesAllByTheFactor) {
  const std::vector<float> plain = rope_frequencies(64, 1e6);
  const std::vector<float> linear = rope_frequencies(64, 1e6, {8, 1, 4, 1});
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(linear[i], plain[i] / 8);
}

}  // namespace
}  // namespace odyssey
