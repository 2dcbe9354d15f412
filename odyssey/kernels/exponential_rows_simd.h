// SPDX-License-Identifier: Apache-2.0
// What needs exp on one row: gated activations, softmax. See row_kernels.h for the meaning and
// vector_simd.h for how it is compiled.
#pragma once
#include "odyssey/kernels/vector_simd.h"

namespace odyssey {
namespace {

struct ValueAndSlope {
  Vector value, slope;
};

struct Silu {
  ODYSSEY_INLINE static ValueAndSlope at(Vector x) {
    const Vector s = sigmoid(x);
    return {x * s, s * (1.0f + x * (1.0f - s))};
  }
};

// x (1 + tanh(u)) / 2 = x sigmoid(2u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
struct Gelu {
  ODYSSEY_INLINE static ValueAndSlope at(Vector x) {
    constexpr float kTwoRoots = 1.59576912f;  // 2 sqrt(2 / pi)
    constexpr float kCubic = 0.044715f;
    // Beyond 10 the sigmoid is 0 or 1 to all digits; the cube of a huge x would overflow.
    const Vector z = lesser(broadcast(10.0f), greater(broadcast(-10.0f), x));
    const Vector s = sigmoid(kTwoRoots * (z + kCubic * z * z * z));
    const Vector slope_of_2u = kTwoRoots * (1.0f + 3.0f * kCubic * z * z);
    return {x * s, s + x * s * (1.0f - s) * slope_of_2u};
  }
};

template <class Function, class T>
void gated(const T* gate, const T* up, int64_t width, T* out) {
  for_vector_pairs(
      width,
      [&](int64_t i, auto part)
          ODYSSEY_ALWAYS { return Function::at(load(gate + i, part)).value * load(up + i, part); },
      [&](int64_t i, Vector v, auto part) ODYSSEY_ALWAYS { store(out + i, v, part); });
}

template <class Function, class T>
void gated_backward(const T* dout, const T* gate, const T* up, int64_t width, T* d_gate, T* d_up) {
  struct Gradients {
    Vector gate, up;
  };
  for_vector_pairs(
      width,
      [&](int64_t i, auto part) ODYSSEY_ALWAYS {
        const ValueAndSlope f = Function::at(load(gate + i, part));
        const Vector d = load(dout + i, part), u = load(up + i, part);
        return Gradients{d * u * f.slope, d * f.value};
      },
      [&](int64_t i, const Gradients& d, auto part) ODYSSEY_ALWAYS {
        store(d_gate + i, d.gate, part);
        store(d_up + i, d.up, part);
      });
}

// Logits are read from memory once: a block of them stays in the first cache for its maximum and
// then for its exponentials, during which the next block is asked for; a new maximum rescales the
// sum so far.
constexpr int64_t kLogitBlock = 1024;
constexpr float kLowestFinite = -3.402823466e38f;

float block_maximum(const float* logits, int64_t size) {
  Vector most[4];
  for (Vector& lanes : most) lanes = broadcast(kLowestFinite);
  int64_t i = 0;
  for (; i + 4 * kLanes <= size; i += 4 * kLanes) {
    for (int s = 0; s < 4; ++s) most[s] = greater(load(logits + i + s * kLanes, Whole{}), most[s]);
  }
  for (; i + kLanes <= size; i += kLanes) most[0] = greater(load(logits + i, Whole{}), most[0]);
  if (i < size) most[1] = greater(load(logits + i, Part{size - i}, kLowestFinite), most[1]);
  return greatest_lane(greater(greater(most[0], most[1]), greater(most[2], most[3])));
}

float block_sum(const float* logits, int64_t size, float most) {
  Vector sums[2] = {};
  int64_t i = 0;
  for (; i + 2 * kLanes <= size; i += 2 * kLanes) {
    for (int s = 0; s < 2; ++s) {
      __builtin_prefetch(logits + i + s * kLanes + kLogitBlock);
      sums[s] += exponential(load(logits + i + s * kLanes, Whole{}) - most);
    }
  }
  for (; i + kLanes <= size; i += kLanes) sums[0] += exponential(load(logits + i, Whole{}) - most);
  if (i < size) {
    sums[1] += exponential(load(logits + i, Part{size - i}, -__builtin_inff()) - most);
  }
  return sum_of_lanes(sums[0] + sums[1]);
}

ExponentialSum exponential_sum(const float* logits, int64_t size) {
  float most = kLowestFinite;
  double sum = 0;
  for (int64_t first = 0; first < size; first += kLogitBlock) {
    const int64_t count = size - first < kLogitBlock ? size - first : kLogitBlock;
    const float here = block_maximum(logits + first, count);
    if (here > most) {
      sum *= static_cast<double>(exponential(broadcast(most - here))[0]);
      most = here;
    }
    sum += static_cast<double>(block_sum(logits + first, count, most));
  }
  return {most, sum};
}

template <class T>
void softmax(const float* logits, float most, float factor, int64_t size, T* out) {
  for_vector_pairs(
      size,
      [&](int64_t i, auto part)
          ODYSSEY_ALWAYS { return factor * exponential(load(logits + i, part) - most); },
      [&](int64_t i, Vector v, auto part) ODYSSEY_ALWAYS { store(out + i, v, part); });
}

}  // namespace
}  // namespace odyssey
