// SPDX-License-Identifier: Apache-2.0
// Sums, conversions and AdamW on one row. See row_kernels.h for the meaning and vector_simd.h for
// how it is compiled.
#pragma once
#include "odyssey/kernels/vector_simd.h"

namespace odyssey {
namespace {

template <class T>
void add(const T* x, int64_t size, T* y) {
  for_vectors(size, [&](int64_t i, auto part) ODYSSEY_ALWAYS {
    store(y + i, load(y + i, part) + load(x + i, part), part);
  });
}

template <class T>
void scale(float factor, const T* x, int64_t size, T* y) {
  for_vectors(size, [&](int64_t i, auto part)
                        ODYSSEY_ALWAYS { store(y + i, load(x + i, part) * factor, part); });
}

template <class T>
void add_scaled(float factor, const T* x, int64_t size, float* y) {
  for_vectors(size, [&](int64_t i, auto part) ODYSSEY_ALWAYS {
    store(y + i, load(y + i, part) + load(x + i, part) * factor, part);
  });
}

// Sum of term(i, part) over the vectors of a row. Four sums hide the latency of an addition.
template <class Term>
ODYSSEY_INLINE float sum_over(int64_t size, const Term& term) {
  Vector sums[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= size; i += 4 * kLanes) {
    for (int s = 0; s < 4; ++s) sums[s] += term(i + s * kLanes, Whole{});
  }
  for (; i + kLanes <= size; i += kLanes) sums[0] += term(i, Whole{});
  if (i < size) sums[1] += term(i, Part{size - i});
  return sum_of_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// In two sums of two halves each, to hide the latency of an addition.
template <class T>
double squares(const T* x, int64_t size) {
  DoubleSum even, odd;
  int64_t i = 0;
  for (; i + 2 * kLanes <= size; i += 2 * kLanes) {
    even.add_squares(load(x + i, Whole{}));
    odd.add_squares(load(x + i + kLanes, Whole{}));
  }
  for (; i + kLanes <= size; i += kLanes) even.add_squares(load(x + i, Whole{}));
  if (i < size) odd.add_squares(load(x + i, Part{size - i}));
  return even.total() + odd.total();
}

template <class T>
float dot(const T* x, const T* y, int64_t size) {
  return sum_over(size, [&](int64_t i, auto part)
                            ODYSSEY_ALWAYS { return load(x + i, part) * load(y + i, part); });
}

void narrow(const float* x, int64_t size, bf16* y) {
  for_vectors(size,
              [&](int64_t i, auto part) ODYSSEY_ALWAYS { store(y + i, load(x + i, part), part); });
}

void widen(const bf16* x, int64_t size, float* y) {
  for_vectors(size,
              [&](int64_t i, auto part) ODYSSEY_ALWAYS { store(y + i, load(x + i, part), part); });
}

double adamw(const AdamwFactors& f, const float* gradient, int64_t size, float* parameter,
             float* mu, float* nu) {
  const AdamwFactors factors = f;  // a copy: stores to the tensors cannot change it
  DoubleSum sum;
  for_vectors(size, [&](int64_t i, auto part) ODYSSEY_ALWAYS {
    const Vector g = load(gradient + i, part) * factors.gradient_scale;
    const Vector m = factors.beta1 * load(mu + i, part) + factors.rest1 * g;
    const Vector v = factors.beta2 * load(nu + i, part) + factors.rest2 * g * g;
    store(mu + i, m, part);
    store(nu + i, v, part);
    const Vector root = square_root(v * factors.correct2 + factors.epsilon_root);
    const Vector update = m * factors.correct1 / (root + factors.epsilon);
    const Vector before = load(parameter + i, part);
    const Vector after = before - factors.rate * (update + factors.decay * before);
    store(parameter + i, after, part);
    sum.add_squares(keep(after, part));
  });
  return sum.total();
}

}  // namespace
}  // namespace odyssey
