// SPDX-License-Identifier: Apache-2.0
// Vectors of ODYSSEY_LANES floats for the attention tiles, written with compiler vectors: loads,
// exponential, transposition, and the register tile of all products. Included through
// attention_tile_simd.h only; everything is in an anonymous namespace, so no instance can leak into
// code for a lesser machine.
#pragma once
#include <cstdint>
#include <cstring>

#ifndef ODYSSEY_LANES
#error "define ODYSSEY_LANES (4, 8 or 16) before including this file"
#endif
#if ODYSSEY_LANES == 16
#include <immintrin.h>
#endif

#define ODYSSEY_INLINE inline __attribute__((always_inline))

namespace odyssey {
namespace {

constexpr int kLanes = ODYSSEY_LANES;
typedef float Vector __attribute__((vector_size(kLanes * 4)));
typedef int32_t IntVector __attribute__((vector_size(kLanes * 4)));

ODYSSEY_INLINE Vector load(const float* p) {
  Vector v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
ODYSSEY_INLINE IntVector load(const int32_t* p) {
  IntVector v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
ODYSSEY_INLINE void store(float* p, Vector v) {
  std::memcpy(p, &v, sizeof(v));
}
ODYSSEY_INLINE Vector broadcast(float x) {
  return x - Vector{};
}
ODYSSEY_INLINE Vector greater(Vector a, Vector b) {
  return a > b ? a : b;
}
ODYSSEY_INLINE IntVector bits_of(Vector x) {
  IntVector bits;
  std::memcpy(&bits, &x, sizeof(x));
  return bits;
}
ODYSSEY_INLINE Vector of_bits(IntVector bits) {
  Vector x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}
ODYSSEY_INLINE bool any(IntVector mask) {
  int32_t bits = 0;
  for (int lane = 0; lane < kLanes; ++lane) bits |= mask[lane];
  return bits != 0;
}

// e^x for x <= 88; 0 below -87.3, where fp32 would be denormal and slow. e^0 = 1. Relative error
// below 2e-7 near 0 (and that of rounding x log2 e elsewhere): 2^n 2^f with |f| <= 1/2 and a
// minimax polynomial of degree 5.
ODYSSEY_INLINE Vector exponential(Vector x) {
  const Vector t = x * 1.44269504088896341f;
  const auto polynomial = [](Vector f) {
    Vector p = f * 0.0013264727f + 0.009671513f;
    p = p * f + 0.055507336f;
    p = p * f + 0.24022242f;
    p = p * f + 0.6931470f;
    return p * f + 1.0f;
  };
#if ODYSSEY_LANES == 16
  const Vector f = _mm512_reduce_ps(t, 0);
  const __mmask16 normal = _mm512_cmp_ps_mask(t, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
  return _mm512_maskz_scalef_ps(normal, polynomial(f), t - f);
#else
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const Vector shifted = t + 12582912.0f;
  const Vector p = polynomial(t - (shifted - 12582912.0f));
  // Unsigned, because the sum wraps where the result is dropped below.
  typedef uint32_t Words __attribute__((vector_size(kLanes * 4)));
  const Words sum =
      reinterpret_cast<Words>(bits_of(p)) + (reinterpret_cast<Words>(bits_of(shifted)) << 23);
  const Vector power = of_bits(reinterpret_cast<IntVector>(sum));
  return t < broadcast(-126.0f) ? Vector{} : power;
#endif
}

// c * tanh(x / c) through exp: tanh(y) = 1 - 2 / (e^2y + 1).
ODYSSEY_INLINE Vector soft_cap(Vector x, float cap, float inverse_cap) {
  Vector y = x * inverse_cap;
  y = y > broadcast(40.0f) ? broadcast(40.0f) : y;
  return cap - (2.0f * cap) / (exponential(y + y) + 1.0f);
}

// Transposes kLanes rows of kLanes floats: log2(kLanes) rounds, of which round s exchanges the
// blocks of s x s that stand off the diagonal.
template <int kStep>
ODYSSEY_INLINE void transpose_round(Vector* rows) {
  IntVector low, high;
#pragma GCC unroll 16
  for (int lane = 0; lane < kLanes; ++lane) {
    const bool second = (lane & kStep) != 0;
    low[lane] = second ? kLanes + lane - kStep : lane;
    high[lane] = second ? kLanes + lane : lane + kStep;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if ((i & kStep) != 0) continue;
    const Vector a = rows[i], b = rows[i + kStep];
    rows[i] = __builtin_shuffle(a, b, low);
    rows[i + kStep] = __builtin_shuffle(a, b, high);
  }
}
ODYSSEY_INLINE void transpose(Vector* rows) {
  transpose_round<1>(rows);
  transpose_round<2>(rows);
  if constexpr (kLanes >= 8) transpose_round<4>(rows);
  if constexpr (kLanes >= 16) transpose_round<8>(rows);
}

// Rows of a register tile: 8 x 3 sums fill 32 registers beside a row of B and a broadcast, 4 x 3
// fill 16.
#if ODYSSEY_LANES == 16 || defined(__aarch64__)
constexpr int kTileRows = 8;
#else
constexpr int kTileRows = 4;
#endif

// C[i][0..N) += or = sum over r of A(i, r) * B[r][0..N) for kTileRows rows and N = kVectors *
// kLanes. A is read by element at a[i * a_row + r * a_r]; rows of B and C are contiguous.
template <int kVectors, bool kAccumulate>
ODYSSEY_INLINE void multiply_tile(const float* a, int64_t a_row, int64_t a_r, const float* b,
                                  int64_t b_row, float* c, int64_t c_row, int64_t depth) {
  Vector sum[kTileRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kVectors; ++j) {
      sum[i][j] = kAccumulate ? load(c + i * c_row + j * kLanes) : Vector{};
    }
  }
  for (int64_t r = 0; r < depth; ++r) {
    Vector row[kVectors];
#pragma GCC unroll 16
    for (int j = 0; j < kVectors; ++j) row[j] = load(b + r * b_row + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kTileRows; ++i) {
      const Vector scalar = broadcast(a[i * a_row + r * a_r]);
#pragma GCC unroll 16
      for (int j = 0; j < kVectors; ++j) sum[i][j] += scalar * row[j];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kVectors; ++j) store(c + i * c_row + j * kLanes, sum[i][j]);
  }
}

}  // namespace
}  // namespace odyssey
