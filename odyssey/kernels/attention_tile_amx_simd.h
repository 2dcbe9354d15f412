// SPDX-License-Identifier: Apache-2.0
// Exponential, masks and packing that the AMX attention files share. Included
// only by files compiled with AMX flags; everything is in an anonymous namespace.
#pragma once
#include <cstdint>

#include <immintrin.h>

#include "odyssey/kernels/amx_tiles.h"
#include "odyssey/kernels/attention_tile_amx.h"

namespace odyssey::amx {
namespace {

constexpr float kLog2E = 1.44269504088896341f;
constexpr float kNothing = -1e30f;  // kNothingSeen of block_attention.h

ODYSSEY_INLINE __m512 all(float x) {
  return _mm512_set1_ps(x);
}

// 2^x, relative error 7.5e-5 (minimax on [0, 1)): what bf16 rounding adds is 26 times as much.
// 2^-inf is 0, so a hidden score is -inf and needs no second mask.
ODYSSEY_INLINE __m512 exp2_fast(__m512 x) {
  const __m512 f = _mm512_reduce_ps(x, 1);
  __m512 p = _mm512_fmadd_ps(all(0.0780245227f), f, all(0.226067155f));
  p = _mm512_fmadd_ps(p, f, all(0.695833541f));
  p = _mm512_fmadd_ps(p, f, all(0.999925219f));
  return _mm512_scalef_ps(p, x);
}
// 2^x to fp32 rounding, 2^0 = 1: for factors that stay in a sum.
ODYSSEY_INLINE __m512 exp2_exact(__m512 x) {
  const __m512 f = _mm512_reduce_ps(x, 0);
  __m512 p = _mm512_fmadd_ps(all(1.54035304e-4f), f, all(1.33335581e-3f));
  p = _mm512_fmadd_ps(p, f, all(9.61812911e-3f));
  p = _mm512_fmadd_ps(p, f, all(5.55041087e-2f));
  p = _mm512_fmadd_ps(p, f, all(2.40226507e-1f));
  p = _mm512_fmadd_ps(p, f, all(6.93147181e-1f));
  p = _mm512_fmadd_ps(p, f, all(1.0f));
  return _mm512_scalef_ps(p, _mm512_sub_ps(x, f));
}
// tanh(x) = 1 - 2 / (e^2x + 1); e^2x may overflow to infinity.
ODYSSEY_INLINE __m512 tanh_exact(__m512 x) {
  const __m512 e = exp2_exact(_mm512_mul_ps(x, all(2 * kLog2E)));
  return _mm512_sub_ps(all(1), _mm512_div_ps(all(2), _mm512_add_ps(e, all(1))));
}

// Two bf16 in a word: a to the low half, b to the high half, rounded to nearest, ties away from
// zero. Half the cost of vcvtne2ps2bf16. rounded() has the bf16 in the high half.
ODYSSEY_INLINE __m512i rounded(__m512 x) {
  return _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
}
ODYSSEY_INLINE __m512i halves(__m512i low, __m512i high) {
  return _mm512_mask_mov_epi16(high, 0x55555555u, low);
}
ODYSSEY_INLINE __m512i pair_up(__m512 a, __m512 b) {
  return halves(_mm512_srli_epi32(rounded(a), 16), rounded(b));
}

// Ones for the first `count` of 32 or 16 lanes; count may be out of range.
ODYSSEY_INLINE __mmask32 first32(int64_t count) {
  return count >= 32 ? 0xffffffffu : count <= 0 ? 0u : (1u << count) - 1;
}
ODYSSEY_INLINE __mmask16 first16(int64_t count) {
  return static_cast<__mmask16>(first32(count > 16 ? 16 : count));
}

// The masks of 32 queries, prepared for two comparisons a vector.
struct MaskRows {
  int32_t least[kQueries], span[kQueries], segment[kQueries];
};
ODYSSEY_INLINE void fill_mask(const QueryBlock& block, MaskRows& mask) {
  const __m512i zero = _mm512_setzero_si512(), none = _mm512_set1_epi32(INT32_MIN);
  for (int64_t half = 0; half < 32; half += 16) {
    const __mmask16 real = first16(block.rows - half);
    const __m512i least =
        _mm512_max_epi32(_mm512_maskz_loadu_epi32(real, block.least + half), zero);
    const __m512i most = _mm512_mask_loadu_epi32(none, real, block.most + half);
    const __m512i segment = _mm512_maskz_loadu_epi32(real, block.segment + half);
    const __mmask16 sees =
        _mm512_cmpneq_epi32_mask(segment, zero) & _mm512_cmpge_epi32_mask(most, least);
    _mm512_storeu_si512(mask.least + half, least);
    _mm512_storeu_si512(mask.span + half, _mm512_maskz_sub_epi32(sees, most, least));
    // A key's segment may be 0 (padding), never the least integer.
    _mm512_storeu_si512(mask.segment + half, _mm512_mask_mov_epi32(none, sees, segment));
  }
}
// The lanes of half `half` (0 or 1) that see the key.
ODYSSEY_INLINE __mmask16 see(const MaskRows& mask, int64_t half, int32_t position,
                             int32_t segment) {
  const __m512i least = _mm512_loadu_si512(mask.least + 16 * half);
  const __m512i span = _mm512_loadu_si512(mask.span + 16 * half);
  const __m512i own = _mm512_loadu_si512(mask.segment + 16 * half);
  const __m512i offset = _mm512_sub_epi32(_mm512_set1_epi32(position), least);
  const __mmask16 same = _mm512_cmpeq_epi32_mask(own, _mm512_set1_epi32(segment));
  // Below `least` the offset wraps to a large unsigned number.
  return _mm512_mask_cmple_epu32_mask(same, offset, span);
}

// Brings the rows of an operand near, some lines at a time beside other work: they stand far apart,
// so no prefetcher of the processor does, and all at once would wait for the slow cache.
class RowFetch {
 public:
  RowFetch() = default;
  RowFetch(const uint16_t* from, int64_t stride, int64_t rows, const Shape& shape)
      : row_(reinterpret_cast<const char*>(from)),
        stride_(2 * stride),
        bytes_(2 * shape.head_size),
        rows_(rows) {}
  ODYSSEY_INLINE void lines(int64_t count) {
    for (; count > 0 && rows_ > 0; --count) {
      _mm_prefetch(row_ + at_, _MM_HINT_T0);
      at_ += 64;
      if (at_ < bytes_) continue;
      at_ = 0;
      row_ += stride_;
      --rows_;
    }
  }

 private:
  const char* row_ = nullptr;
  int64_t stride_ = 0, bytes_ = 0, rows_ = 0, at_ = 0;
};

// Rows of 32 bf16 of columns [32 * step, ...), zeros behind the ends of the operand.
ODYSSEY_INLINE __m512i load_row(const uint16_t* from, int64_t stride, int64_t row, int64_t rows,
                                int64_t step, int64_t head_size) {
  const __mmask32 mask = row < rows ? first32(head_size - 32 * step) : 0u;
  return _mm512_maskz_loadu_epi16(mask, from + (mask != 0 ? row * stride + 32 * step : 0));
}

// Pairs of elements of adjacent rows a and b: columns 0..15, columns 16..31.
ODYSSEY_INLINE void interleave(__m512i a, __m512i b, __m512i& low, __m512i& high) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  // Word 2i takes a[i], word 2i + 1 takes b[i], which has index 32 + i.
  const __m512i index =
      _mm512_or_si512(lane, _mm512_slli_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32(32)), 16));
  low = _mm512_permutex2var_epi16(a, index, b);
  high = _mm512_permutex2var_epi16(a, _mm512_add_epi32(index, _mm512_set1_epi32(0x00100010)), b);
}

// 32 queries -> right operand of products over the head size: [steps][2][16 pairs][16 queries][2].
inline void pack_queries(const uint16_t* from, int64_t stride, int64_t rows, const Shape& shape,
                         uint16_t* to, RowFetch ahead) {
  for (int64_t step = 0; step < shape.steps; ++step) {
    for (int64_t half = 0; half < 2; ++half) {
      __m512i r[16];
      for (int i = 0; i < 16; ++i) {
        r[i] = load_row(from, stride, 16 * half + i, rows, step, shape.head_size);
      }
      ahead.lines(16);
      transpose16(r);
      for (int i = 0; i < 16; ++i) {
        _mm512_store_si512(to + step * 1024 + half * 512 + i * 32, r[i]);
      }
    }
  }
}

}  // namespace
}  // namespace odyssey::amx
