// SPDX-License-Identifier: Apache-2.0
// bf16 products on AMX tiles: blocking, packing plan and threads. matmul.cc decides what comes
// here.
#pragma once
#include <cstdint>

#include "odyssey/base/bf16.h"

namespace odyssey {

// A [rows, columns] matrix of bf16, or the transposed of one that lies in memory as
// [columns, rows]. `stride` is in elements, between rows as they lie in memory.
struct AmxOperand {
  const bf16* data;
  int64_t rows, columns, stride;
  bool transposed;
};

// Row-major, bf16 or fp32; `stride` in elements.
struct AmxResult {
  void* data;
  int64_t rows, columns, stride;
  bool is_bf16;
};

// [rows, inner] x [inner, columns]; the first may lie in memory as its transposed.
struct AmxShape {
  int64_t rows, columns, inner;
  bool transposed;
};
// Whether the tiles are faster than oneDNN.
bool amx_is_faster(const AmxShape& shape);
// Bytes that a rank's first such product takes as scratch and keeps.
int64_t amx_scratch_bytes(const AmxShape& shape);

// c (+)= a b: sums in fp32, rounded once. Extents are at least 1. Same bits at any thread count.
// Call only where isa_in_use() is Isa::kAmx. Denormal inputs and bf16 results count as zero.
void multiply_amx(const AmxOperand& a, const AmxOperand& b, const AmxResult& c, bool accumulate);

}  // namespace odyssey
