// SPDX-License-Identifier: Apache-2.0
// Softmax of a block of 32 queries in bf16 block attention: exponents and maxima as pieces that run
// between tile products, masks and soft cap, and the reference that exponents are relative to.
// Included only by files compiled with AMX flags.
#pragma once
#include "odyssey/kernels/attention_tile_amx_simd.h"

namespace odyssey::amx {
namespace {

// The reference of a row is the largest score of the first key tile that it sees, and stays until
// the sum exceeds this: P in bf16 and sums in fp32 lose nothing by scores far above the reference.
// So accumulators are rescaled about once a call, and the step needs no maxima (measured: 6 % of
// the forward at head size 64 and at 512 keys, 2 % at 128 and many).
constexpr float kMostSum = 0x1p40f;

// What vector code does beside the products of a step.
enum class Beside { kNone, kSoftmax, kSoftmaxAndMaxima };

// Softmax of a query block.
struct alignas(64) Row {
  float reference[kQueries];  // what exponents are relative to, times log2(e)
  float sum[kQueries];
  // Largest score of this call in the units of `scores`, if these are recorded; -inf: saw nothing.
  float top[kQueries];
  MaskRows mask;
  bool settled;        // references need not be looked for before the next exponents
  bool fresh;          // the accumulator stands for zeros, whatever it holds
  const uint16_t* q;   // packed
  float* accumulator;  // [padded][32] in squares, transposed
};

// Words [rows][32 queries] stand as the tiles that are loaded and stored: [rows / 16][2][16][16]. A
// tile is 16 lines in a row then; 128 bytes from line to line cost 5 % of the whole.
constexpr int64_t square_at(int64_t row, int64_t half) {
  return row / 16 * 512 + half * 256 + row % 16 * 16;
}

// Vector half-operations (a pair of keys x 16 queries) for every four tile products, so that the 64
// of a step spread over its 2 * steps products of scores and as many of P V.
template <int kHalves>
constexpr int first_half(int slot) {
  return (kHalves * slot + 3) / 4;
}

// pair_up() by one byte shuffle, on port 5: while tiles are in use, all floating point work and
// shifts of 512 bits share port 0, which the forward keeps busy (measured against the shift and the
// blend: 7 % of the whole at head size 64, 2 % at 128; the backward gains nothing).
ODYSSEY_INLINE __m512i pair_up_bytes(__m512 a, __m512 b) {
  const __m512i upper =
      _mm512_broadcast_i32x4(_mm_setr_epi8(2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15));
  return _mm512_mask_shuffle_epi8(rounded(b), 0x3333333333333333u, rounded(a), upper);
}

// The softmax of scores on its way: half-operations [kFrom, kTo) counted from s and p, which stand
// in squares. Scores are read once: the sums tell afterwards whether the reference was good enough.
struct Exponents {
  __m512 factor, reference0, reference1, sum0, sum1, most0, most1;
  const float* s;
  uint16_t* p;
  int left;  // half-operations
};
template <int kFrom, int kTo, Beside kBeside>
ODYSSEY_INLINE void exponents(Exponents& x) {
#pragma GCC unroll 16
  for (int h = kFrom; h < kTo; ++h) {
    const bool second = (h & 1) != 0;
    const float* s = x.s + (h >> 1) * 32 + (second ? 256 : 0);
    const __m512 reference = second ? x.reference1 : x.reference0;
    __m512& sum = second ? x.sum1 : x.sum0;
    const __m512 even = _mm512_load_ps(s), odd = _mm512_load_ps(s + 16);
    if constexpr (kBeside == Beside::kSoftmaxAndMaxima) {
      __m512& most = second ? x.most1 : x.most0;
      most = _mm512_max_ps(most, _mm512_max_ps(even, odd));
    }
    const __m512 a = exp2_fast(_mm512_fmsub_ps(even, x.factor, reference));
    const __m512 b = exp2_fast(_mm512_fmsub_ps(odd, x.factor, reference));
    sum = _mm512_add_ps(sum, _mm512_add_ps(a, b));
    _mm512_store_si512(x.p + (h >> 1) * 32 + (second ? 512 : 0), pair_up_bytes(a, b));
  }
}
template <int kHalves, int kSlot, Beside kBeside>
ODYSSEY_INLINE void exponents_of_slot(Exponents& x) {
  if constexpr (kBeside != Beside::kNone) {
    exponents<first_half<kHalves>(kSlot), first_half<kHalves>(kSlot + 1), kBeside>(x);
  }
}
template <int kHalves, Beside kBeside>
ODYSSEY_INLINE void next_slots(Exponents& x) {
  if constexpr (kBeside != Beside::kNone) {
    x.left -= kHalves;
    x.s += kHalves * 16 + ((x.left & 15) == 0 ? 256 : 0);
    x.p += kHalves * 16 + ((x.left & 31) == 0 ? 512 : 0);
  }
}

ODYSSEY_INLINE Exponents begin_exponents(const Row& row, const float* scores, float factor,
                                         uint16_t* p) {
  const __m512 least = all(-__builtin_inff());
  return {all(factor),
          _mm512_load_ps(row.reference),
          _mm512_load_ps(row.reference + 16),
          _mm512_load_ps(row.sum),
          _mm512_load_ps(row.sum + 16),
          least,
          least,
          scores,
          p,
          64};
}
// sum, most: [32] out, most only with maxima.
template <Beside kBeside>
ODYSSEY_INLINE void end_exponents(Exponents& x, float* sum, float* most) {
  for (; x.left > 0; next_slots<2, kBeside>(x)) exponents<0, 2, kBeside>(x);
  _mm512_store_ps(sum, x.sum0);
  _mm512_store_ps(sum + 16, x.sum1);
  if constexpr (kBeside != Beside::kSoftmaxAndMaxima) return;
  _mm512_store_ps(most, x.most0);
  _mm512_store_ps(most + 16, x.most1);
}

// most[32]: the largest score of each query in a key tile.
void maxima(const float* scores, float* most) {
  fence();
  __m512 top[2] = {all(-__builtin_inff()), all(-__builtin_inff())};
  for (int64_t square = 0; square < 8; ++square) {
    const float* s = scores + square * 256;
    for (int64_t r = 0; r < 256; r += 16) {
      top[square & 1] = _mm512_max_ps(top[square & 1], _mm512_load_ps(s + r));
    }
  }
  _mm512_store_ps(most, top[0]);
  _mm512_store_ps(most + 16, top[1]);
}

// Applies scale, soft cap and mask to the scores of one key tile where the exponent cannot do it.
void adjust_scores(float* scores, const Shape& shape, const Row& row, bool partial, bool scaled,
                   const int32_t* position, const int32_t* segment) {
  const __m512 hidden = all(-__builtin_inff());
  const bool capped = shape.soft_cap != 0;
  const __m512 cap = all(shape.soft_cap), inverse = all(capped ? 1 / shape.soft_cap : 0);
  for (int64_t half = 0; half < 2; ++half) {
    for (int64_t j = 0; j < kKeys; ++j) {
      float* s = scores + square_at(j, half);
      __m512 x = _mm512_load_ps(s);
      if (scaled) {
        x = _mm512_mul_ps(x, all(shape.scale));
        if (capped) x = _mm512_mul_ps(cap, tanh_exact(_mm512_mul_ps(x, inverse)));
      }
      if (partial) {
        x = _mm512_mask_mov_ps(hidden, see(row.mask, half, position[j], segment[j]), x);
      }
      _mm512_store_ps(s, x);
    }
  }
}

ODYSSEY_INLINE void keep_sum(Row& row, const float* sum) {
  _mm512_store_ps(row.sum, _mm512_load_ps(sum));
  _mm512_store_ps(row.sum + 16, _mm512_load_ps(sum + 16));
}
ODYSSEY_INLINE void keep_top(Row& row, const float* most) {
  for (int64_t half = 0; half < 32; half += 16) {
    const __m512 top = _mm512_load_ps(row.top + half);
    _mm512_store_ps(row.top + half, _mm512_max_ps(top, _mm512_load_ps(most + half)));
  }
}

template <int kCompare>
ODYSSEY_INLINE __mmask32 compare(const float* x, float with) {
  const __mmask16 low = _mm512_cmp_ps_mask(_mm512_load_ps(x), all(with), kCompare);
  const __mmask16 high = _mm512_cmp_ps_mask(_mm512_load_ps(x + 16), all(with), kCompare);
  return low | static_cast<__mmask32>(high) << 16;
}
// The queries whose reference is not that of a score, and those whose sums outgrew theirs.
ODYSSEY_INLINE __mmask32 unsettled(const Row& row) {
  return compare<_CMP_LE_OQ>(row.reference, kNothing);
}
ODYSSEY_INLINE __mmask32 outgrown(const float* sum) {
  return compare<_CMP_GT_OQ>(sum, kMostSum);
}

// Raises the references of some queries, and only those, to the largest score `most` of a key tile:
// what a row sees may not change the rounding of another. p: probabilities of `tiles` key tiles
// that are not in the accumulator yet.
__attribute__((noinline)) void rescale(Row& row, __mmask32 queries, const float* most, float factor,
                                       uint16_t* p, int64_t tiles, int64_t padded) {
  fence();
  for (int64_t half = 0; half < 2; ++half) {
    const __m512 before = _mm512_load_ps(row.reference + 16 * half);
    const __m512 top = _mm512_mul_ps(_mm512_load_ps(most + 16 * half), all(factor));
    const __m512 now =
        _mm512_mask_max_ps(before, static_cast<__mmask16>(queries >> (16 * half)), before, top);
    _mm512_store_ps(row.reference + 16 * half, now);
    const __m512 sum = _mm512_load_ps(row.sum + 16 * half);
    if (_mm512_cmp_ps_mask(sum, _mm512_setzero_ps(), _CMP_NEQ_UQ) == 0) continue;
    const __m512 shrink = exp2_exact(_mm512_sub_ps(before, now));
    _mm512_store_ps(row.sum + 16 * half, _mm512_mul_ps(sum, shrink));
    for (int64_t d = 0; d < padded; ++d) {
      float* x = row.accumulator + square_at(d, half);
      _mm512_store_ps(x, _mm512_mul_ps(_mm512_load_ps(x), shrink));
    }
    for (int64_t pair = 0; pair < 32 * tiles; ++pair) {
      uint16_t* x = p + 2 * square_at(pair, half);
      const __m512i both = _mm512_load_si512(x);
      const __m512 low = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
      const __m512 high = _mm512_castsi512_ps(
          _mm512_and_si512(both, _mm512_set1_epi32(static_cast<int32_t>(0xffff0000u))));
      _mm512_store_si512(x, pair_up(_mm512_mul_ps(low, shrink), _mm512_mul_ps(high, shrink)));
    }
  }
  fence();
}

}  // namespace
}  // namespace odyssey::amx
