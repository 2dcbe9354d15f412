// SPDX-License-Identifier: Apache-2.0
// The running softmax of a block of 32 queries on its way into the transposed form of the steps and
// back. Included only by files compiled with AMX flags.
#pragma once
#include "odyssey/kernels/attention_softmax_amx.h"

namespace odyssey::amx {
namespace {

void begin_row(const QueryBlock& block, const Shape& shape, Row& row, uint16_t* q) {
  pack_queries(block.q, block.q_stride, block.rows, shape, q);
  row.q = q;
  fill_mask(block, row.mask);
  row.settled = true;
  bool empty = true;
  for (int64_t i = 0; i < kQueries; ++i) {
    const bool real = i < block.rows;
    row.reference[i] = real ? block.max[i] * kLog2E : kNothing;
    row.sum[i] = real ? block.sum[i] : 0;
    row.top[i] = -__builtin_inff();
    empty = empty && row.sum[i] == 0;
    row.settled = row.settled && row.reference[i] > kNothing;
  }
  row.fresh = empty;
  if (empty) return;
  for (int64_t d = 0; d < shape.padded(); d += 16) {
    const __mmask16 columns = first16(shape.head_size - d);
    for (int64_t half = 0; half < 32; half += 16) {
      __m512i r[16];
      for (int64_t i = 0; i < 16; ++i) {
        const __mmask16 mask = row.sum[half + i] != 0 ? columns : __mmask16{0};
        const int64_t at = mask != 0 ? (half + i) * block.accumulator_stride + d : 0;
        r[i] = _mm512_maskz_loadu_epi32(mask, block.accumulator + at);
      }
      transpose16(r);
      for (int64_t i = 0; i < 16; ++i) {
        _mm512_store_si512(row.accumulator + square_at(d + i, half / 16), r[i]);
      }
    }
  }
}

// Of a row that is still fresh, for lack of keys.
void clear_accumulator(const Shape& shape, const Row& row) {
  for (int64_t i = 0; i < shape.padded() * 32; i += 16) {
    _mm512_store_ps(row.accumulator + i, _mm512_setzero_ps());
  }
}

// Writes max and sum of the rows that saw something back, relative to their true maximum. shrink
// [32]: what brings an accumulator there; saw [32]: which rows saw something in this call.
void end_row(const QueryBlock& block, const Row& row, float to_score, float* shrink, bool* saw) {
  alignas(64) float most[kQueries];
  for (int64_t i = 0; i < kQueries; ++i) {
    saw[i] = i < block.rows && row.top[i] > -__builtin_inff();
    const float top = saw[i] ? row.top[i] * to_score : kNothing;
    const float before = i < block.rows ? block.max[i] : kNothing;
    most[i] = top > before ? top : before;
  }
  for (int64_t half = 0; half < 32; half += 16) {
    const __m512 now = _mm512_mul_ps(_mm512_load_ps(most + half), all(kLog2E));
    const __m512 less = _mm512_sub_ps(_mm512_load_ps(row.reference + half), now);
    _mm512_store_ps(shrink + half, exp2_exact(less));
  }
  for (int64_t i = 0; i < block.rows; ++i) {
    if (!saw[i]) continue;
    block.max[i] = most[i];
    block.sum[i] = row.sum[i] * shrink[i];
  }
}

// 16 columns from d on of 16 rows from `half` on, times shrink, as rows.
ODYSSEY_INLINE void rows_of(const Row& row, const float* shrink, int64_t half, int64_t d,
                            __m512i* r) {
  const __m512 factor = _mm512_load_ps(shrink + half);
  for (int64_t i = 0; i < 16; ++i) {
    const __m512 x = _mm512_load_ps(row.accumulator + square_at(d + i, half / 16));
    r[i] = _mm512_castps_si512(_mm512_mul_ps(x, factor));
  }
  transpose16(r);
}

void write_accumulator(const QueryBlock& block, const Shape& shape, const Row& row,
                       const float* shrink, const bool* saw) {
  for (int64_t half = 0; half < 32; half += 16) {
    for (int64_t d = 0; d < shape.head_size; d += 16) {
      const __mmask16 columns = first16(shape.head_size - d);
      __m512i r[16];
      rows_of(row, shrink, half, d, r);
      for (int64_t i = 0; i < 16; ++i) {
        if (!saw[half + i]) continue;
        float* to = block.accumulator + (half + i) * block.accumulator_stride + d;
        _mm512_mask_storeu_epi32(to, columns, r[i]);
      }
    }
  }
}

// As bf16(float) of base/bf16.h: to nearest, ties to even; NaN stays NaN.
ODYSSEY_INLINE __m256i narrowed(__m512 x) {
  const __m512i word = _mm512_castps_si512(x), high = _mm512_srli_epi32(word, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(word, _mm512_add_epi32(_mm512_set1_epi32(0x7fff), odd));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(
      _mm512_mask_or_epi32(_mm512_srli_epi32(up, 16), nan, high, _mm512_set1_epi32(0x40)));
}

// out = accumulator * factors [32], 32 columns at a time: a store of half a cache line costs as
// much as one of a whole.
void write_out(const QueryBlock& block, const Shape& shape, const Row& row, const float* shrink,
               const float* factors) {
  for (int64_t half = 0; half < 32; half += 16) {
    for (int64_t d = 0; d < shape.head_size; d += 32) {
      const __mmask32 columns = first32(shape.head_size - d);
      __m512i low[16], high[16];
      rows_of(row, shrink, half, d, low);
      rows_of(row, shrink, half, d + 16, high);
      for (int64_t i = 0; i < 16 && half + i < block.rows; ++i) {
        const __m512 factor = all(factors[half + i]);
        const __m256i a = narrowed(_mm512_mul_ps(_mm512_castsi512_ps(low[i]), factor));
        const __m256i b = narrowed(_mm512_mul_ps(_mm512_castsi512_ps(high[i]), factor));
        uint16_t* to = block.out + (half + i) * block.out_stride + d;
        _mm512_mask_storeu_epi16(to, columns, _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1));
      }
    }
  }
}

// Brings the rows of an operand near: they stand far apart, so no prefetcher of the processor does.
ODYSSEY_INLINE void fetch_rows(const uint16_t* from, int64_t stride, int64_t rows,
                               const Shape& shape) {
  for (int64_t i = 0; i < rows; ++i) {
    const char* row = reinterpret_cast<const char*>(from + i * stride);
    for (int64_t at = 0; at < 2 * shape.head_size; at += 64) _mm_prefetch(row + at, _MM_HINT_T0);
  }
}

}  // namespace
}  // namespace odyssey::amx
