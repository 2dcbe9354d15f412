// SPDX-License-Identifier: Apache-2.0
// exp and the logistic function in fp32 without calls or branches, so that the compiler can turn
// loops over them into vector code. Relative error of exp below 2e-7 (tested).
#pragma once
#include <bit>
#include <cstdint>

namespace odyssey {

// e^x. 0 below -87.3, infinity above 88.37 (the ends of the fp32 range); NaN stays NaN.
inline float vector_exp(float x) {
  constexpr float kLowest = -87.3f, kHighest = 88.37f;
  constexpr float kRound =
      12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  float inside = x < kLowest ? kLowest : x;
  inside = inside > kHighest ? kHighest : inside;
  const float shifted = inside * 1.44269504f + kRound;
  const float n = shifted - kRound;
  // ln 2 in two parts, so that n * ln 2 is subtracted exactly.
  const float r = (inside - n * 0.693359375f) + n * 2.12194440e-4f;
  // Minimax polynomial of e^r on |r| <= ln(2) / 2; coefficients of the Cephes library, expf.
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const uint32_t exponent =
      std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound) + 127;
  float result = p * std::bit_cast<float>(exponent << 23);
  result = x < kLowest ? 0.0f : result;
  return x > kHighest ? __builtin_inff() : result;
}

// 1 / (1 + e^-x)
inline float vector_sigmoid(float x) {
  return 1.0f / (1.0f + vector_exp(-x));
}

}  // namespace odyssey
