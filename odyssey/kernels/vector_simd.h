// SPDX-License-Identifier: Apache-2.0
// Vectors of ODYSSEY_LANES floats for the row kernels: load and store in both storage types, whole
// or in part, and exp. Included by row_kernels_{portable,avx2,avx512}.cc through the *_rows_simd.h
// files; everything is in an anonymous namespace, so no instance can leak into code for a lesser
// machine.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "odyssey/kernels/row_kernels.h"

#ifndef ODYSSEY_LANES
#error "define ODYSSEY_LANES (4, 8 or 16) before including this file"
#endif

namespace odyssey {
namespace {

constexpr int kLanes = ODYSSEY_LANES;
typedef float Vector __attribute__((vector_size(kLanes * 4)));
typedef int32_t IntVector __attribute__((vector_size(kLanes * 4)));
typedef uint32_t WordVector __attribute__((vector_size(kLanes * 4)));
typedef uint16_t HalfVector __attribute__((vector_size(kLanes * 2)));

#define ODYSSEY_INLINE inline __attribute__((always_inline))
#define ODYSSEY_ALWAYS __attribute__((always_inline))  // the same for lambdas

// How much of a vector is meant: all lanes, or the first few at the end of a row. The rest of a
// part is loaded as a filler and never stored, so an element is computed alike wherever it stands.
struct Whole {};
struct Part {
  int64_t count;
};

// Calls body(i, Whole or Part) for the vectors of a row.
template <class Body>
ODYSSEY_INLINE void for_vectors(int64_t size, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) body(i, Whole{});
  if (i < size) body(i, Part{size - i});
}

// Calls store(i, compute(i, part), part) for the vectors of a row, two of them side by side: the
// chain of operations behind an exponential is longer than what a core looks ahead.
template <class Compute, class Store>
ODYSSEY_INLINE void for_vector_pairs(int64_t size, const Compute& compute, const Store& store) {
  int64_t i = 0;
  for (; i + 2 * kLanes <= size; i += 2 * kLanes) {
    const auto first = compute(i, Whole{}), second = compute(i + kLanes, Whole{});
    store(i, first, Whole{});
    store(i + kLanes, second, Whole{});
  }
  for_vectors(size - i, [&](int64_t j, auto part)
                            ODYSSEY_ALWAYS { store(i + j, compute(i + j, part), part); });
}

ODYSSEY_INLINE Vector broadcast(float x) {
  return x - Vector{};
}
ODYSSEY_INLINE Vector as_floats(WordVector v) {
  return reinterpret_cast<Vector>(v);
}
ODYSSEY_INLINE WordVector as_words(Vector v) {
  return reinterpret_cast<WordVector>(v);
}

// b where either is NaN.
ODYSSEY_INLINE Vector greater(Vector a, Vector b) {
#if ODYSSEY_LANES == 16
  return _mm512_max_ps(a, b);
#elif ODYSSEY_LANES == 8
  return _mm256_max_ps(a, b);
#elif defined(__x86_64__)
  return _mm_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}
ODYSSEY_INLINE Vector lesser(Vector a, Vector b) {
#if ODYSSEY_LANES == 16
  return _mm512_min_ps(a, b);
#elif ODYSSEY_LANES == 8
  return _mm256_min_ps(a, b);
#elif defined(__x86_64__)
  return _mm_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}

ODYSSEY_INLINE Vector square_root(Vector v) {
#if ODYSSEY_LANES == 16
  return _mm512_sqrt_ps(v);
#elif ODYSSEY_LANES == 8
  return _mm256_sqrt_ps(v);
#elif defined(__x86_64__)
  return _mm_sqrt_ps(v);
#else
  for (int lane = 0; lane < kLanes; ++lane) v[lane] = __builtin_sqrtf(v[lane]);
  return v;
#endif
}

#if ODYSSEY_LANES == 16
ODYSSEY_INLINE __mmask16 mask(Part part) {
  return static_cast<__mmask16>((1U << part.count) - 1);
}
#endif

ODYSSEY_INLINE Vector load(const float* p, Whole) {
  Vector v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
ODYSSEY_INLINE void store(float* p, Vector v, Whole) {
  std::memcpy(p, &v, sizeof(v));
}
ODYSSEY_INLINE Vector load(const float* p, Part part, float filler = 0) {
#if ODYSSEY_LANES == 16
  return _mm512_mask_loadu_ps(broadcast(filler), mask(part), p);
#else
  Vector v = broadcast(filler);
  std::memcpy(&v, p, static_cast<size_t>(part.count) * sizeof(float));
  return v;
#endif
}
ODYSSEY_INLINE void store(float* p, Vector v, Part part) {
#if ODYSSEY_LANES == 16
  _mm512_mask_storeu_ps(p, mask(part), v);
#else
  std::memcpy(p, &v, static_cast<size_t>(part.count) * sizeof(float));
#endif
}

ODYSSEY_INLINE Vector widened(HalfVector v) {
#if ODYSSEY_LANES == 16
  const __m512i words = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(v));
#elif ODYSSEY_LANES == 8
  const __m256i words = _mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(v));
#else
  const WordVector words = __builtin_convertvector(v, WordVector);
#endif
  return as_floats(reinterpret_cast<WordVector>(words) << 16);
}
ODYSSEY_INLINE HalfVector lower_halves(WordVector words) {
#if ODYSSEY_LANES == 16
  return reinterpret_cast<HalfVector>(_mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(words)));
#elif ODYSSEY_LANES == 8
  const __m256i zero = _mm256_setzero_si256();
  const __m256i packed = _mm256_packus_epi32(reinterpret_cast<__m256i>(words), zero);
  return reinterpret_cast<HalfVector>(
      _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
#else
  return __builtin_convertvector(words, HalfVector);
#endif
}
// The rounding of the bf16 constructor: to nearest even; NaN becomes quiet.
ODYSSEY_INLINE HalfVector narrowed(Vector v) {
#if defined(__AVX512BF16__)
  // One instruction does so, but for numbers below 2^-126, which it takes for zero.
  constexpr int kDenormal = 0x20;
  if (__builtin_expect(_mm512_fpclass_ps_mask(v, kDenormal) == 0, 1)) {
    return reinterpret_cast<HalfVector>(_mm512_cvtneps_pbh(v));
  }
#endif
  const WordVector word = as_words(v);
  const WordVector even = (word + 0x7fffU + ((word >> 16) & 1U)) >> 16;
  return lower_halves(v == v ? even : (word >> 16) | 0x40U);
}

ODYSSEY_INLINE Vector load(const bf16* p, Whole) {
  HalfVector v;
  std::memcpy(&v, p, sizeof(v));
  return widened(v);
}
ODYSSEY_INLINE void store(bf16* p, Vector v, Whole) {
  const HalfVector halves = narrowed(v);
  std::memcpy(&p->bits, &halves, sizeof(halves));
}
ODYSSEY_INLINE Vector load(const bf16* p, Part part) {
#if ODYSSEY_LANES == 16
  return widened(reinterpret_cast<HalfVector>(_mm256_maskz_loadu_epi16(mask(part), p)));
#else
  HalfVector v = {};
  std::memcpy(&v, p, static_cast<size_t>(part.count) * sizeof(bf16));
  return widened(v);
#endif
}
ODYSSEY_INLINE void store(bf16* p, Vector v, Part part) {
  const HalfVector halves = narrowed(v);
#if ODYSSEY_LANES == 16
  _mm256_mask_storeu_epi16(p, mask(part), reinterpret_cast<__m256i>(halves));
#else
  std::memcpy(&p->bits, &halves, static_cast<size_t>(part.count) * sizeof(bf16));
#endif
}

// Zero in the lanes behind a part.
ODYSSEY_INLINE Vector keep(Vector v, Whole) {
  return v;
}
ODYSSEY_INLINE Vector keep(Vector v, Part part) {
  Vector kept = {};
  std::memcpy(&kept, &v, static_cast<size_t>(part.count) * sizeof(float));
  return kept;
}

// By halves: lane i takes lane i + kLanes / 2, and so on.
ODYSSEY_INLINE float sum_of_lanes(Vector v) {
#if ODYSSEY_LANES == 16
  return _mm512_reduce_add_ps(v);
#else
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) v[lane] += v[lane + half];
  }
  return v[0];
#endif
}
ODYSSEY_INLINE float greatest_lane(Vector v) {
  float most = v[0];
  for (int lane = 1; lane < kLanes; ++lane) most = v[lane] > most ? v[lane] : most;
  return most;
}

// A sum of vectors in double, in two halves.
struct DoubleSum {
  typedef double Doubles __attribute__((vector_size(kLanes * 4)));
  typedef float Floats __attribute__((vector_size(kLanes * 2)));
  Doubles low{}, high{};

  ODYSSEY_INLINE void add_squares(Vector v) {
    Floats halves[2];
    std::memcpy(halves, &v, sizeof(v));
    const Doubles a = __builtin_convertvector(halves[0], Doubles);
    const Doubles b = __builtin_convertvector(halves[1], Doubles);
    low += a * a;
    high += b * b;
  }
  ODYSSEY_INLINE double total() const {
    const Doubles both = low + high;
    double sum = 0;
    for (int lane = 0; lane < kLanes / 2; ++lane) sum += both[lane];
    return sum;
  }
};

// e^x with the range of kernels/exponential.h: relative error below 2e-7; 0 below -87.3, infinity
// above 88.37 (AVX-512: above the largest number); NaN stays NaN.
ODYSSEY_INLINE Vector exponential(Vector x) {
  constexpr float kLowest = -87.3f, kHighest = ODYSSEY_LANES == 16 ? 89.0f : 88.37f;
  Vector inside = lesser(broadcast(kHighest), x);
#if ODYSSEY_LANES != 16  // there lanes below the range are masked in the end, whatever they hold
  inside = greater(broadcast(kLowest), inside);
#endif
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const Vector magic = broadcast(12582912.0f);
  const Vector shifted = inside * 1.44269504088896341f + magic;
  const Vector n = shifted - magic;
  Vector f = inside - n * 0.693359375f;
  f = f - n * -2.12194440e-4f;
  // 1 + f + f^2 q(f), q of degree 4 through e^f at the Chebyshev nodes of |f| <= ln(2)/2: off by
  // 1e-8, less than the rounding.
  Vector q = f * 1.392625039e-3f + 8.363232948e-3f;
  q = q * f + 4.166655242e-2f;
  q = q * f + 1.666657627e-1f;
  q = q * f + 5.000000000e-1f;
  const Vector p = q * (f * f) + f + 1.0f;
#if ODYSSEY_LANES == 16
  const __mmask16 not_below = _mm512_cmp_ps_mask(x, broadcast(kLowest), _CMP_NLT_UQ);
  return _mm512_maskz_scalef_ps(not_below, p, n);
#else
  const WordVector exponent = (as_words(shifted) - as_words(magic) + 127U) << 23;
  const Vector inner = p * as_floats(exponent);
  const Vector upper = x > broadcast(kHighest) ? broadcast(__builtin_inff()) : inner;
  return x < broadcast(kLowest) ? Vector{} : upper;
#endif
}

// 1 / (1 + e^-x)
ODYSSEY_INLINE Vector sigmoid(Vector x) {
#if ODYSSEY_LANES == 16
  // A division would bound the whole kernel; one Newton step from 14 bits is as exact. Below -87
  // the sum leaves the range of the reciprocal and the value is 0.
  const Vector sum = 1.0f + exponential(lesser(broadcast(87.0f), -x));
  const Vector r = _mm512_rcp14_ps(sum);
  const __mmask16 not_below = _mm512_cmp_ps_mask(x, broadcast(-87.0f), _CMP_NLT_UQ);
  return _mm512_maskz_mov_ps(not_below, r + r * (1.0f - sum * r));
#else
  return 1.0f / (1.0f + exponential(-x));
#endif
}

}  // namespace
}  // namespace odyssey
