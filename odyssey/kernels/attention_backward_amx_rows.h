// SPDX-License-Identifier: Apache-2.0
// Rows on their way into and out of the AMX backward: queries packed, gradients added to. Included
// only by files compiled with AMX flags; everything is in an anonymous namespace.
#pragma once
#include "odyssey/kernels/attention_tile_amx_simd.h"

namespace odyssey::amx {
namespace {

// What the backward keeps of a query block.
struct alignas(64) Row {
  float lse[kQueries];  // times log2(e); 1e30, which gives P = 0, for rows that see nothing
  float delta[kQueries];
  MaskRows mask;
  const uint16_t *q, *dout;  // packed by pack_both
  // As pairs of rows, [steps][blocks][1024] for all blocks; the first row's is used.
  const uint16_t *q_pairs, *dout_pairs;
  float* dq;  // [padded][32], transposed, lacks the scale
  bool dq_begun;
};

inline void begin_row(const QueryBlock& block, Row& row) {
  fill_mask(block, row.mask);
  for (int64_t i = 0; i < kQueries; ++i) {
    const bool sees = i < block.rows && block.max[i] > kNothing;
    row.lse[i] = sees ? block.max[i] * kLog2E : -kNothing;
    row.delta[i] = sees ? block.sum[i] : 0;
  }
}

// 32 rows of queries -> right operands, as pack_queries has them in `to`, and of products over
// queries in `pairs`, where row i is paired with row i + 16: [steps][2][16 pairs][16][2], one step
// `gap` elements behind the other. Rows that lie a power of two apart share few lines of L1, so
// each part of a row is read once.
inline void pack_both(const uint16_t* from, int64_t stride, int64_t rows, const Shape& shape,
                      int64_t gap, RowFetch ahead, uint16_t* to, uint16_t* pairs) {
  for (int64_t step = 0; step < shape.steps; ++step, to += 1024, pairs += gap) {
    __m512i r[32];
    for (int i = 0; i < 32; ++i) r[i] = load_row(from, stride, i, rows, step, shape.head_size);
    for (int i = 0; i < 16; ++i) {
      __m512i low, high;
      interleave(r[i], r[i + 16], low, high);
      _mm512_store_si512(pairs + i * 32, low);
      _mm512_store_si512(pairs + 512 + i * 32, high);
    }
    ahead.lines(16);
    transpose16(r);
    ahead.lines(16);
    transpose16(r + 16);
    for (int i = 0; i < 32; ++i) _mm512_store_si512(to + i * 32, r[i]);
  }
}

// 16 rows of 16 columns at to += factor * x, or = where they are fresh. All loads come before the
// stores: rows may lie a multiple of 4 KiB apart, and a load waits for a store just before it to
// such an address.
ODYSSEY_INLINE void add_rows(const __m512* x, int64_t rows, __mmask16 columns, float factor,
                             bool fresh, float* to, int64_t stride) {
  __m512 sum[16];
  for (int i = 0; i < 16; ++i) {
    const __mmask16 mask = i < rows && !fresh ? columns : __mmask16{0};
    sum[i] = _mm512_fmadd_ps(x[i], all(factor), _mm512_maskz_loadu_ps(mask, to + i * stride));
  }
  for (int i = 0; i < 16 && i < rows; ++i) _mm512_mask_storeu_ps(to + i * stride, columns, sum[i]);
}

// For a block that saw nothing.
inline void clear_rows(float* dq, const Shape& shape) {
  for (int64_t i = 0; i < kQueries * shape.padded(); i += 16) {
    _mm512_store_ps(dq + i, _mm512_setzero_ps());
  }
}

// dq rows += scale * dq of the call, or = where they are fresh. A row goes out whole before the
// next 16 rows begin: its lines are neighbours (measured: 1 to 2 % at 512 keys).
inline void end_row(const QueryBlock& block, const Shape& shape, const Row& row) {
  if (!row.dq_begun) clear_rows(row.dq, shape);
  for (int64_t half = 0; half < 32 && half < block.rows; half += 16) {
    for (int64_t d = 0; d < shape.head_size; d += 16) {
      __m512i r[16];
      for (int64_t i = 0; i < 16; ++i) r[i] = _mm512_load_si512(row.dq + (d + i) * 32 + half);
      transpose16(r);
      __m512 x[16];
      for (int64_t i = 0; i < 16; ++i) x[i] = _mm512_castsi512_ps(r[i]);
      add_rows(x, block.rows - half, first16(shape.head_size - d), shape.scale, block.fresh,
               block.accumulator + half * block.accumulator_stride + d, block.accumulator_stride);
    }
  }
}

}  // namespace
}  // namespace odyssey::amx
