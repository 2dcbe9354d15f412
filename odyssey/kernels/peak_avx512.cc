// SPDX-License-Identifier: Apache-2.0
// Peak of fused multiply-adds on vectors of 16 floats.
#include <immintrin.h>

#include "odyssey/kernels/peak_loop.h"

namespace odyssey {
namespace {

// 24 sums, as in a register tile of 8 x 3, and 8 of 32 registers left. GCC unrolls 16 rounds at
// most unless told.
constexpr int kSums = 24;

}  // namespace

void avx512_peak_loop(const void* random, void* sums) {
  const float* in = static_cast<const float*>(random);
  float* out = static_cast<float*>(sums);
  // A factor below 1 keeps the sums normal numbers.
  const __m512 factor =
      _mm512_fmadd_ps(_mm512_load_ps(in), _mm512_set1_ps(0.001f), _mm512_set1_ps(0.9f));
  const __m512 add = _mm512_load_ps(in + 16);
  __m512 sum[kSums];
#pragma GCC unroll 24
  for (int i = 0; i < kSums; ++i) sum[i] = _mm512_load_ps(in + 32 + 16 * i);
  for (int round = 0; round < kPeakRounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < kSums; ++i) sum[i] = _mm512_fmadd_ps(sum[i], factor, add);
  }
#pragma GCC unroll 24
  for (int i = 0; i < kSums; ++i) _mm512_store_ps(out + 16 * i, sum[i]);
}

}  // namespace odyssey
