// SPDX-License-Identifier: Apache-2.0
// S, dP, P and dS of the AMX backward, 32 keys x 32 queries at a time. The vector work of one
// square runs beside the tile products of the next, one key of 32 queries behind each product.
#pragma once
#include "odyssey/kernels/attention_backward_amx_products.h"
#include "odyssey/kernels/attention_backward_amx_rows.h"

namespace odyssey::amx {
namespace {

// S and dP of 32 keys x 32 queries and what becomes of them.
struct Square {
  const float *s, *dp;  // [32][32]
  // P and dS as left operands, [2][16 keys][32 queries in the order 0, 16, 1, 17, ...]; dS as right
  // operand, [16 pairs of keys][32 queries][2].
  uint16_t *p, *ds, *ds_pairs;
  const Row* row;
  const int32_t *position, *segment;  // of the keys
  bool partial;
};

// One key of a square: P and dS of 32 queries, before and after rounding.
struct KeyValues {
  __m512 p0, p1, ds0, ds1;
};
// The lower halves hold queries 0..15, the upper ones queries 16..31.
struct RoundedKey {
  __m512i up0, up1, low0, low1;
};
ODYSSEY_INLINE RoundedKey write_key(const Square& x, int64_t key, const KeyValues& v) {
  const __m512i up0 = rounded(v.ds0), up1 = rounded(v.ds1);
  const RoundedKey r{up0, up1, _mm512_srli_epi32(up0, 16), _mm512_srli_epi32(up1, 16)};
  _mm512_store_si512(x.p + key * 32, pair_up(v.p0, v.p1));
  _mm512_store_si512(x.ds + key * 32, halves(r.low0, r.up1));
  return r;
}
// dS as right operand, once both keys of a pair are known.
ODYSSEY_INLINE void write_pair(const Square& x, int64_t pair, const RoundedKey& even,
                               const RoundedKey& odd) {
  _mm512_store_si512(x.ds_pairs + pair * 64, halves(even.low0, odd.up0));
  _mm512_store_si512(x.ds_pairs + pair * 64 + 32, halves(even.low1, odd.up1));
}

// Of a square without mask and soft cap: what all its keys need, kept in registers.
struct PlainSoftmax {
  __m512 factor, lse0, lse1, delta0, delta1;
};
ODYSSEY_INLINE PlainSoftmax plain_softmax(const Row& row, float factor) {
  return {all(factor), _mm512_load_ps(row.lse), _mm512_load_ps(row.lse + 16),
          _mm512_load_ps(row.delta), _mm512_load_ps(row.delta + 16)};
}
ODYSSEY_INLINE RoundedKey softmax_key(const Square& x, int64_t key, const PlainSoftmax& c) {
  const float* s = x.s + key * 32;
  const float* dp = x.dp + key * 32;
  const __m512 p0 = exp2_fast(_mm512_fmsub_ps(_mm512_load_ps(s), c.factor, c.lse0));
  const __m512 p1 = exp2_fast(_mm512_fmsub_ps(_mm512_load_ps(s + 16), c.factor, c.lse1));
  const __m512 ds0 = _mm512_mul_ps(p0, _mm512_sub_ps(_mm512_load_ps(dp), c.delta0));
  const __m512 ds1 = _mm512_mul_ps(p1, _mm512_sub_ps(_mm512_load_ps(dp + 16), c.delta1));
  return write_key(x, key, {p0, p1, ds0, ds1});
}
ODYSSEY_INLINE void softmax_pair(const Square& x, int64_t pair, const PlainSoftmax& c) {
  const RoundedKey even = softmax_key(x, 2 * pair, c);
  write_pair(x, pair, even, softmax_key(x, 2 * pair + 1, c));
}

// Any square, with soft cap and mask.
ODYSSEY_INLINE KeyValues general_key(const Square& x, const Shape& shape, int64_t key) {
  const __m512 cap = all(shape.soft_cap),
               inverse = all(shape.soft_cap != 0 ? 1 / shape.soft_cap : 0);
  __m512 p[2], ds[2];
  for (int64_t half = 0; half < 2; ++half) {
    const int64_t at = key * 32 + half * 16;
    __m512 s = _mm512_mul_ps(_mm512_load_ps(x.s + at), all(shape.scale));
    __m512 slope = all(1);
    if (shape.soft_cap != 0) {
      const __m512 tanh = tanh_exact(_mm512_mul_ps(s, inverse));
      s = _mm512_mul_ps(tanh, cap);
      slope = _mm512_fnmadd_ps(tanh, tanh, all(1));
    }
    const __m512 lse = _mm512_load_ps(x.row->lse + 16 * half);
    const __m512 delta = _mm512_load_ps(x.row->delta + 16 * half);
    const __mmask16 seen =
        x.partial ? see(x.row->mask, half, x.position[key], x.segment[key]) : __mmask16{0xffff};
    p[half] = _mm512_maskz_mov_ps(seen, exp2_fast(_mm512_fmsub_ps(s, all(kLog2E), lse)));
    const __m512 dp = _mm512_sub_ps(_mm512_load_ps(x.dp + at), delta);
    ds[half] = _mm512_maskz_mul_ps(seen, _mm512_mul_ps(p[half], slope), dp);
  }
  return {p[0], p[1], ds[0], ds[1]};
}
inline void softmax_general(const Square& x, const Shape& shape) {
  for (int64_t pair = 0; pair < 16; ++pair) {
    const RoundedKey even = write_key(x, 2 * pair, general_key(x, shape, 2 * pair));
    write_pair(x, pair, even, write_key(x, 2 * pair + 1, general_key(x, shape, 2 * pair + 1)));
  }
}

struct Scores {
  int64_t steps;
  const uint16_t *k, *v, *q, *dout;
  float *s, *dp;
  const Square* before;  // the square before this one, to be finished meanwhile
  float factor;
  const char* ahead;  // to be fetched into L2 meanwhile, 512 bytes a step; null: nothing
};

// The key pairs of the square before, some behind each pair of products.
template <bool kSoftmax>
struct Beside {
  Square square;
  PlainSoftmax constants;
  int64_t pair = 0;
  RoundedKey even;

  // kPairs: of one step of products. Rows 0..15 of dP stand in memory before slot 0 of the first
  // step, the others before slot 1, so slot 0 must not reach pair 8: kPairs <= 8.
  template <int kPairs>
  static constexpr int pairs_of_slot(int slot) {
    static_assert(kPairs <= 8);
    return kPairs >= 2 ? kPairs / 2 : slot;
  }
  template <int kPairs, int kSlot>
  ODYSSEY_INLINE void first_key() {
    if constexpr (kSoftmax && pairs_of_slot<kPairs>(kSlot) > 0) {
      if (pair < 16) even = softmax_key(square, 2 * pair, constants);
    }
  }
  template <int kPairs, int kSlot>
  ODYSSEY_INLINE void other_keys() {
    if constexpr (kSoftmax && pairs_of_slot<kPairs>(kSlot) > 0) {
      if (pair < 16) {
        write_pair(square, pair, even, softmax_key(square, 2 * pair + 1, constants));
        for (int i = 1; i < pairs_of_slot<kPairs>(kSlot); ++i) {
          softmax_pair(square, pair + i, constants);
        }
        pair += pairs_of_slot<kPairs>(kSlot);
      }
    }
  }
};

// S and dP of 32 keys x 32 queries; `held` is dP of the square before, and dP of this one is
// returned. K and V are used again by the next blocks of queries, so Q and dO stream past them.
template <int kPairs, bool kSoftmax>
__attribute__((noinline)) Held run_scores(const Scores& j, Held held) {
  fence();
  Beside<kSoftmax> beside;
  if constexpr (kSoftmax) {
    beside.square = *j.before;
    beside.constants = plain_softmax(*j.before->row, j.factor);
  }
  const char* ahead = j.ahead;
  for (int product = 0; product < 2; ++product) {
    const uint16_t* a = product == 0 ? j.k : j.v;
    const uint16_t* a_below = a + 512 * j.steps;
    const uint16_t* b = product == 0 ? j.q : j.dout;
    load_tile<4>(a, 64);
    stream_tile<6>(b, 64);
    store_one<0>(held);
    zero_tile<0>();
    multiply<0, 4, 6>();
    stream_tile<7>(b + 512, 64);
    store_one<1>(held);
    zero_tile<1>();
    multiply<1, 4, 7>();
    beside.template first_key<kPairs, 0>();
    load_tile<5>(a_below, 64);
    store_one<2>(held);
    zero_tile<2>();
    multiply<2, 5, 6>();
    beside.template other_keys<kPairs, 0>();
    store_one<3>(held);
    zero_tile<3>();
    multiply<3, 5, 7>();
    beside.template first_key<kPairs, 1>();
    beside.template other_keys<kPairs, 1>();
    for (int64_t step = 1; step < j.steps; ++step) {
      a += 512;
      a_below += 512;
      b += 1024;
      load_tile<4>(a, 64);
      stream_tile<6>(b, 64);
      multiply<0, 4, 6>();
      beside.template first_key<kPairs, 0>();
      stream_tile<7>(b + 512, 64);
      multiply<1, 4, 7>();
      beside.template other_keys<kPairs, 0>();
      load_tile<5>(a_below, 64);
      multiply<2, 5, 6>();
      beside.template first_key<kPairs, 1>();
      multiply<3, 5, 7>();
      beside.template other_keys<kPairs, 1>();
      if (ahead != nullptr) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) _mm_prefetch(ahead + 64 * i, _MM_HINT_T1);
        ahead += 512;
      }
    }
    held = {product == 0 ? j.s : j.dp, 512};
  }
  fence();
  return held;
}

using RunScores = Held (*)(const Scores&, Held);
struct Kernels {
  RunScores scores, scores_softmax;
};
template <int kPairs>
constexpr Kernels kernels_of() {
  return {run_scores<kPairs, false>, run_scores<kPairs, true>};
}
inline const Kernels& kernels_for(int64_t steps) {
  static constexpr Kernels kTable[] = {kernels_of<8>(), kernels_of<4>(), kernels_of<4>(),
                                       kernels_of<2>(), kernels_of<2>(), kernels_of<2>(),
                                       kernels_of<2>(), kernels_of<1>()};
  return kTable[steps - 1];
}

}  // namespace
}  // namespace odyssey::amx
