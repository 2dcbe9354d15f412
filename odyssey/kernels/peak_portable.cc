// SPDX-License-Identifier: Apache-2.0
// Peak of multiply and add on vectors of 4 floats, on any machine.
#include "odyssey/kernels/peak_loop.h"

namespace odyssey {
namespace {

typedef float Vector __attribute__((vector_size(16)));
// 12 sums hide the latency of a multiply and an add and leave 4 of 16 registers.
constexpr int kSums = 12;

}  // namespace

void portable_peak_loop(const void* random, void* sums) {
  const Vector* in = static_cast<const Vector*>(random);
  Vector* out = static_cast<Vector*>(sums);
  // A factor below 1 keeps the sums normal numbers.
  const Vector factor = in[0] * 0.001f + 0.9f, add = in[1];
  Vector sum[kSums];
  for (int i = 0; i < kSums; ++i) sum[i] = in[2 + i];
  for (int round = 0; round < kPeakRounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < kSums; ++i) sum[i] = sum[i] * factor + add;
  }
  for (int i = 0; i < kSums; ++i) out[i] = sum[i];
}

}  // namespace odyssey
