// SPDX-License-Identifier: Apache-2.0
// Peak of fused multiply-adds on vectors of 8 floats.
#include <immintrin.h>

#include "odyssey/kernels/peak_loop.h"

namespace odyssey {
namespace {

// 12 sums hide 4 cycles of latency at 2 a cycle and leave 4 of 16 registers.
constexpr int kSums = 12;

}  // namespace

void avx2_peak_loop(const void* random, void* sums) {
  const float* in = static_cast<const float*>(random);
  float* out = static_cast<float*>(sums);
  // A factor below 1 keeps the sums normal numbers.
  const __m256 factor =
      _mm256_fmadd_ps(_mm256_load_ps(in), _mm256_set1_ps(0.001f), _mm256_set1_ps(0.9f));
  const __m256 add = _mm256_load_ps(in + 8);
  __m256 sum[kSums];
  for (int i = 0; i < kSums; ++i) sum[i] = _mm256_load_ps(in + 16 + 8 * i);
  for (int round = 0; round < kPeakRounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < kSums; ++i) sum[i] = _mm256_fmadd_ps(sum[i], factor, add);
  }
  for (int i = 0; i < kSums; ++i) _mm256_store_ps(out + 8 * i, sum[i]);
}

}  // namespace odyssey
