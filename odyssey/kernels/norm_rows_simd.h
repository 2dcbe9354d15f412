// SPDX-License-Identifier: Apache-2.0
// RMS norm and RoPE on one row, and the angles of RoPE. See row_kernels.h for the meaning and
// vector_simd.h for how it is compiled.
#pragma once
#include "odyssey/kernels/plain_rows_simd.h"

namespace odyssey {
namespace {

// Both passes of a norm ask for lines early: the first for those that the second will write, the
// second, which finds its row in the cache, for the row behind. Processors that prefetch by
// themselves stop at the end of a page, and a row is about that long. A wrong guess costs nothing.
template <class T>
ODYSSEY_INLINE void prefetch_row(const T* p) {
  __builtin_prefetch(p);
}

template <class T>
float norm(const T* x, const T* w, float offset, float epsilon, int64_t width, T* y) {
  const float sum = sum_over(width, [&](int64_t i, auto part) ODYSSEY_ALWAYS {
    prefetch_row(y + i);
    const Vector v = load(x + i, part);
    return v * v;
  });
  const float r = 1.0f / __builtin_sqrtf(sum / static_cast<float>(width) + epsilon);
  for_vectors(width, [&](int64_t i, auto part) ODYSSEY_ALWAYS {
    prefetch_row(x + width + i);
    store(y + i, load(x + i, part) * r * (offset + load(w + i, part)), part);
  });
  return r;
}

// y[i] = x[i] r (o + w[i]) gives dw[i] = dy[i] x[i] r and, with g[i] = dy[i] (o + w[i]),
// dx[i] = r g[i] - x[i] r^3 / E * sum over j of g[j] x[j].
template <bool kAccumulate, class T>
ODYSSEY_INLINE void norm_backward_into(const T* dy, const T* x, const T* w, float offset, float r,
                                       int64_t width, T* dx, float* dw) {
  const float dot = sum_over(width, [&](int64_t i, auto part) ODYSSEY_ALWAYS {
    prefetch_row(dx + i);
    return load(dy + i, part) * (offset + load(w + i, part)) * load(x + i, part);
  });
  const float shrink = dot * r * r / static_cast<float>(width);
  for_vectors(width, [&](int64_t i, auto part) ODYSSEY_ALWAYS {
    prefetch_row(dy + width + i);
    prefetch_row(x + width + i);
    const Vector g = load(dy + i, part), value = load(x + i, part);
    store(dw + i, load(dw + i, part) + g * value * r, part);
    Vector gradient = r * (g * (offset + load(w + i, part)) - value * shrink);
    if constexpr (kAccumulate) gradient += load(dx + i, part);
    store(dx + i, gradient, part);
  });
}

template <class T>
void norm_backward(const T* dy, const T* x, const T* w, float offset, float r, int64_t width,
                   bool accumulate, T* dx, float* dw) {
  if (accumulate) {
    norm_backward_into<true>(dy, x, w, offset, r, width, dx, dw);
  } else {
    norm_backward_into<false>(dy, x, w, offset, r, width, dx, dw);
  }
}

template <class T>
void turn(T* low, T* high, const float* cosines, const float* sines, int64_t pairs) {
  for_vectors(pairs, [&](int64_t i, auto part) ODYSSEY_ALWAYS {
    const Vector a = load(low + i, part), b = load(high + i, part);
    const Vector c = load(cosines + i, part), s = load(sines + i, part);
    store(low + i, a * c - b * s, part);
    store(high + i, b * c + a * s, part);
  });
}

// Rounds a double to an integer and leaves that in its low bits.
constexpr double kRoundDouble = 6755399441055744.0;  // 1.5 * 2^52

void angles(float position, const float* frequencies, int64_t count, float* cosines, float* sines) {
  // Taking off n quarter turns needs double: angles reach 2^20, and the rest shall be good to
  // 1e-8. pi/2 in two parts, the first of 33 bits, so that n * pi/2 is exact for n up to 2^20.
  constexpr double kInverse = 0.63661977236758134308, kHalfPi = 1.57079632673412561417,
                   kHalfPiRest = 6.07710050650619224932e-11;
  for_vectors(count, [&](int64_t i, auto part) ODYSSEY_ALWAYS {
    float angle[kLanes], rest[kLanes];
    int32_t quarter[kLanes];
    store(angle, load(frequencies + i, part) * position, Whole{});
    for (int lane = 0; lane < kLanes; ++lane) {
      const double x = angle[lane];
      const double n = (x * kInverse + kRoundDouble) - kRoundDouble;
      rest[lane] = static_cast<float>((x - n * kHalfPi) - n * kHalfPiRest);
      quarter[lane] = static_cast<int32_t>(n);
    }
    const Vector r = load(rest, Whole{});
    IntVector q;
    std::memcpy(&q, quarter, sizeof(q));
    const Vector z = r * r;
    // Minimax polynomials on |r| <= pi/4; coefficients of the Cephes library, sinf and cosf.
    Vector sine = z * -1.9515295891e-4f + 8.3321608736e-3f;
    sine = (sine * z - 1.6666654611e-1f) * z * r + r;
    Vector cosine = z * 2.443315711809948e-5f - 1.388731625493765e-3f;
    cosine = (cosine * z + 4.166664568298827e-2f) * (z * z) - 0.5f * z + 1.0f;
    // Quarter q: (cos, sin) = (c, s), (-s, c), (-c, -s), (s, -c).
    const IntVector odd = -(q & 1);
    const WordVector cosine_sign = reinterpret_cast<WordVector>(((q + 1) & 2) << 30);
    const WordVector sine_sign = reinterpret_cast<WordVector>((q & 2) << 30);
    store(cosines + i, as_floats(as_words(odd ? sine : cosine) ^ cosine_sign), part);
    store(sines + i, as_floats(as_words(odd ? cosine : sine) ^ sine_sign), part);
  });
}

}  // namespace
}  // namespace odyssey
