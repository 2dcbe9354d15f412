// SPDX-License-Identifier: Apache-2.0
// The running softmax of a block of 32 queries on its way into the transposed form of the steps and
// back. Included only by files compiled with AMX flags.
#pragma once
#include "odyssey/kernels/attention_softmax_amx.h"

namespace odyssey::amx {
namespace {

void begin_row(const QueryBlock& block, const Shape& shape, const RowFetch& ahead, Row& row,
               uint16_t* q) {
  pack_queries(block.q, block.q_stride, block.rows, shape, q, ahead);
  row.q = q;
  fill_mask(block, row.mask);
  __mmask16 held = 0;
  for (int64_t half = 0; half < 32; half += 16) {
    const __mmask16 real = first16(block.rows - half);
    const __m512 max = _mm512_mask_loadu_ps(all(kNothing), real, block.max + half);
    const __m512 reference = _mm512_mask_mul_ps(all(kNothing), real, max, all(kLog2E));
    const __m512 sum = _mm512_maskz_loadu_ps(real, block.sum + half);
    _mm512_store_ps(row.reference + half, reference);
    _mm512_store_ps(row.sum + half, sum);
    _mm512_store_ps(row.top + half, all(-__builtin_inff()));
    held |= _mm512_cmp_ps_mask(sum, _mm512_setzero_ps(), _CMP_NEQ_UQ);
  }
  row.settled = unsettled(row) == 0;
  row.fresh = held == 0;
  if (row.fresh) return;
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

// Writes max and sum of the rows that saw something back, max as shape.record_max says. shrink
// [32]: what accumulators are to be multiplied by. Returns which rows must be written, all that saw
// something in this call among them.
__mmask32 end_row(const QueryBlock& block, const Shape& shape, const Row& row, float to_score,
                  float* shrink) {
  __mmask32 rows = 0;
  for (int64_t half = 0; half < 32; half += 16) {
    const __mmask16 real = first16(block.rows - half);
    const __m512 before = _mm512_mask_loadu_ps(all(kNothing), real, block.max + half);
    const __m512 reference = _mm512_load_ps(row.reference + half);
    const __m512 sum = _mm512_load_ps(row.sum + half);
    // Where neither record_max nor a raised reference moves max, nothing is rounded.
    __m512 most;
    __mmask16 write, moved = 0xffff;
    if (shape.record_max) {
      const __m512 top = _mm512_load_ps(row.top + half);
      write = _mm512_mask_cmp_ps_mask(real, top, all(-__builtin_inff()), _CMP_GT_OQ);
      most = _mm512_max_ps(_mm512_mask_mul_ps(all(kNothing), write, top, all(to_score)), before);
    } else {
      write = _mm512_mask_cmp_ps_mask(real, sum, _mm512_setzero_ps(), _CMP_NEQ_UQ);
      moved = _mm512_cmp_ps_mask(reference, _mm512_mul_ps(before, all(kLog2E)), _CMP_NEQ_UQ);
      most = _mm512_mask_mul_ps(before, moved, reference, all(1 / kLog2E));
    }
    const __m512 less = _mm512_sub_ps(reference, _mm512_mul_ps(most, all(kLog2E)));
    const __m512 factor = _mm512_mask_mov_ps(all(1), moved, exp2_exact(less));
    _mm512_store_ps(shrink + half, factor);
    _mm512_mask_storeu_ps(block.sum + half, write, _mm512_mul_ps(sum, factor));
    _mm512_mask_storeu_ps(block.max + half, write, most);
    rows |= static_cast<__mmask32>(write) << half;
  }
  return rows;
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
                       const float* shrink, __mmask32 rows) {
  for (int64_t half = 0; half < 32; half += 16) {
    for (int64_t d = 0; d < shape.head_size; d += 16) {
      const __mmask16 columns = first16(shape.head_size - d);
      __m512i r[16];
      rows_of(row, shrink, half, d, r);
      for (int64_t i = 0; i < 16; ++i) {
        if ((rows >> (half + i) & 1) == 0) continue;
        float* to = block.accumulator + (half + i) * block.accumulator_stride + d;
        _mm512_mask_storeu_epi32(to, columns, r[i]);
      }
    }
  }
}

// Two rows of fp32 as words of two bf16: a in the low half, b in the high half. To nearest, ties to
// even, as bf16(float) of base/bf16.h; what is smaller than any normal number becomes zero.
ODYSSEY_INLINE __m512i nearest_pairs(__m512 a, __m512 b) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  // The conversion puts all of a before all of b: word i is to take elements i and 16 + i.
  const __m512i pairs =
      _mm512_or_si512(lane, _mm512_slli_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32(16)), 16));
  return _mm512_permutexvar_epi16(pairs, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a)));
}

// 32 columns of a row. Whole lines of `out` go past the caches: nothing reads them before this call
// ends, and to be written in a cache they would be read first (measured: 3 % at 512 keys).
ODYSSEY_INLINE void store_columns(uint16_t* to, __mmask32 columns, __m512i x) {
  if (columns == 0xffffffffu && reinterpret_cast<uintptr_t>(to) % 64 == 0) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), x);
  } else {
    _mm512_mask_storeu_epi16(to, columns, x);
  }
}

// out = accumulator * factors [32]. What is transposed are pairs of bf16, half as many words. A
// fence must follow before other threads may read `out`.
void write_out(const QueryBlock& block, const Shape& shape, const Row& row, const float* shrink,
               const float* factors) {
  for (int64_t half = 0; half < 32; half += 16) {
    const __m512 first = _mm512_load_ps(shrink + half), second = _mm512_load_ps(factors + half);
    for (int64_t d = 0; d < shape.head_size; d += 32) {
      const __mmask32 columns = first32(shape.head_size - d);
      __m512i r[16];
#pragma GCC unroll 16
      for (int64_t i = 0; i < 16; ++i) {
        const float* from = row.accumulator + square_at(d + 2 * i, half / 16);
        r[i] =
            nearest_pairs(_mm512_mul_ps(_mm512_mul_ps(_mm512_load_ps(from), first), second),
                          _mm512_mul_ps(_mm512_mul_ps(_mm512_load_ps(from + 16), first), second));
      }
      transpose16(r);
      uint16_t* to = block.out + half * block.out_stride + d;
      for (int64_t i = 0; i < 16 && half + i < block.rows; ++i, to += block.out_stride) {
        store_columns(to, columns, r[i]);
      }
    }
  }
}

}  // namespace
}  // namespace odyssey::amx
