// SPDX-License-Identifier: Apache-2.0
// Block attention forward on bf16 matrix tiles, and the packing of keys and values.
//
// One step forms the scores of 64 keys x 32 queries on tiles, while vector code turns the scores of
// the step before into probabilities, and then adds a share of P V of the key chunk before: the
// tile unit and the vector units work side by side.
#include "odyssey/kernels/attention_tile_amx_simd.h"

namespace odyssey::amx {
namespace {

constexpr int64_t kMostTiles = 4;  // key tiles of one chunk
// The reference maximum of a row stays until a score exceeds it by a factor of 2^8; P in bf16 and
// sums in fp32 lose nothing by that, and accumulators are rescaled about once a call.
constexpr float kSlack = 8;

// Softmax of a query block.
struct alignas(64) Row {
  float reference[kQueries];  // what exponents are relative to, times log2(e)
  float sum[kQueries];
  float top[kQueries];  // largest score of this call in the units of `scores`; -inf: saw nothing
  MaskRows mask;
  const uint16_t* q;   // packed
  float* accumulator;  // [padded][32], transposed
};

// The key tiles of one chunk that a query block sees.
struct Group {
  Row* row;
  const QueryBlock* block;
  int64_t count, first_step;
  int64_t tiles[kMostTiles];
  bool partial[kMostTiles];
  uint16_t* p;  // [count][32 key pairs][32 queries][2]
  const uint16_t* v[kMostTiles];
  const char* ahead;  // what to fetch into L2 meanwhile, or nullptr
};

// Vector half-operations (a pair of keys x 16 queries) for every four tile products, so that the 64
// of a step spread over its 2 * steps products of scores and as many of P V.
template <int kHalves>
constexpr int first_half(int slot) {
  return (kHalves * slot + 3) / 4;
}

// Runs the half-operations [kFrom, kTo) counted from s and p.
struct Exponents {
  __m512 factor, reference0, reference1, sum0, sum1;
  const float* s;
  uint16_t* p;
  int left;
};
template <int kFrom, int kTo>
ODYSSEY_INLINE void exponents(Exponents& x) {
#pragma GCC unroll 16
  for (int h = kFrom; h < kTo; ++h) {
    const float* s = x.s + (h >> 1) * 64 + (h & 1) * 16;
    const __m512 reference = (h & 1) != 0 ? x.reference1 : x.reference0;
    const __m512 a = exp2_fast(_mm512_fmsub_ps(_mm512_load_ps(s), x.factor, reference));
    const __m512 b = exp2_fast(_mm512_fmsub_ps(_mm512_load_ps(s + 32), x.factor, reference));
    const __m512 sum = _mm512_add_ps(a, b);
    if ((h & 1) != 0) {
      x.sum1 = _mm512_add_ps(x.sum1, sum);
    } else {
      x.sum0 = _mm512_add_ps(x.sum0, sum);
    }
    _mm512_store_si512(x.p + (h >> 1) * 64 + (h & 1) * 32, pair_up(a, b));
  }
}
template <int kHalves, int kSlot, bool kSoftmax>
ODYSSEY_INLINE void exponents_of_slot(Exponents& x) {
  if constexpr (kSoftmax) {
    if (x.left >= kHalves) exponents<first_half<kHalves>(kSlot), first_half<kHalves>(kSlot + 1)>(x);
  }
}
template <int kHalves, bool kSoftmax>
ODYSSEY_INLINE void next_slots(Exponents& x) {
  if constexpr (kSoftmax) {
    if (x.left >= kHalves) {
      x.s += kHalves * 32;
      x.p += kHalves * 32;
      x.left -= kHalves;
    }
  }
}
ODYSSEY_INLINE void rest_of_exponents(Exponents& x) {
  for (; x.left > 0; x.left -= 2, x.s += 64, x.p += 64) exponents<0, 2>(x);
}

// Column maxima of scores, taken while P V runs.
struct Maxima {
  __m512 most0, most1;
  const float* s;
  int left;  // rows
};
template <int kRows>
ODYSSEY_INLINE void maxima(Maxima& x) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    x.most0 = _mm512_max_ps(x.most0, _mm512_load_ps(x.s + 32 * r));
    x.most1 = _mm512_max_ps(x.most1, _mm512_load_ps(x.s + 32 * r + 16));
  }
  x.s += 32 * kRows;
}

struct Step {
  int64_t steps;
  const uint16_t *k, *q;
  float* scores;
  // The step before.
  const float* last_scores;
  Row* last;
  uint16_t* p;
  float factor;
  // Units of P V: 32 columns of V each, over the whole group.
  const Group* ready;
  int64_t first_unit, units;
  // Where the four sums still in tiles belong: 32 x 32 words.
  float* held;
  float* most;  // [32] out
  const char* ahead;
};

ODYSSEY_INLINE void store_held(float* held) {
  store_tile<0>(held, 128);
  store_tile<1>(held + 16, 128);
  store_tile<2>(held + 512, 128);
  store_tile<3>(held + 528, 128);
}

ODYSSEY_INLINE void fetch_ahead(const char*& ahead) {
  if (ahead == nullptr) return;
  _mm_prefetch(ahead, _MM_HINT_T1);
  _mm_prefetch(ahead + 64, _MM_HINT_T1);
  _mm_prefetch(ahead + 128, _MM_HINT_T1);
  _mm_prefetch(ahead + 192, _MM_HINT_T1);
  ahead += 256;
}

// Scores of 64 keys x 32 queries; the second half of them stays in tiles (returned as held). Sums
// left in tiles are stored one by one just before their tile is needed: four stores at once would
// drain the tile unit.
template <int kHalves, bool kSoftmax>
ODYSSEY_INLINE float* multiply_scores(const Step& j, Exponents& x, const char*& ahead) {
  float* held = j.held;
  for (int64_t part = 0; part < 2; ++part) {
    const uint16_t* k = j.k + part * 1024 * j.steps;
    const uint16_t* k_below = k + 512 * j.steps;
    const uint16_t* q = j.q;
    stream_tile<4>(k, 64);
    load_tile<6>(q, 64);
    store_tile<0>(held, 128);
    zero_tile<0>();
    multiply<0, 4, 6>();
    exponents_of_slot<kHalves, 0, kSoftmax>(x);
    load_tile<7>(q + 512, 64);
    store_tile<1>(held + 16, 128);
    zero_tile<1>();
    multiply<1, 4, 7>();
    exponents_of_slot<kHalves, 1, kSoftmax>(x);
    stream_tile<5>(k_below, 64);
    store_tile<2>(held + 512, 128);
    zero_tile<2>();
    multiply<2, 5, 6>();
    exponents_of_slot<kHalves, 2, kSoftmax>(x);
    store_tile<3>(held + 528, 128);
    zero_tile<3>();
    multiply<3, 5, 7>();
    exponents_of_slot<kHalves, 3, kSoftmax>(x);
    next_slots<kHalves, kSoftmax>(x);
    fetch_ahead(ahead);
    for (int64_t step = 1; step < j.steps; ++step) {
      k += 512;
      k_below += 512;
      q += 1024;
      stream_tile<4>(k, 64);
      load_tile<6>(q, 64);
      multiply<0, 4, 6>();
      exponents_of_slot<kHalves, 0, kSoftmax>(x);
      load_tile<7>(q + 512, 64);
      multiply<1, 4, 7>();
      exponents_of_slot<kHalves, 1, kSoftmax>(x);
      stream_tile<5>(k_below, 64);
      multiply<2, 5, 6>();
      exponents_of_slot<kHalves, 2, kSoftmax>(x);
      multiply<3, 5, 7>();
      exponents_of_slot<kHalves, 3, kSoftmax>(x);
      next_slots<kHalves, kSoftmax>(x);
      fetch_ahead(ahead);
    }
    held = j.scores + part * 1024;
  }
  return held;
}

// accumulator[32 columns of V][32 queries] += V^T P over the keys of a group; the sum stays in
// tiles. Returns where it belongs.
template <int kHalves, bool kSoftmax, bool kMaxima>
ODYSSEY_INLINE float* multiply_values(const Group& g, int64_t unit, float* held, Exponents& x,
                                      Maxima& y, const char*& ahead) {
  constexpr int kRows = kHalves / 2;  // of maxima per product
  float* to = g.row->accumulator + unit * 1024;
  const uint16_t* v = g.v[0] + unit * 2048;
  const uint16_t* p = g.p;
  const bool on = kMaxima && y.left >= 4 * kRows;
  stream_tile<4>(v, 64);
  stream_tile<6>(p, 128);
  store_tile<0>(held, 128);
  stream_tile<0>(to, 128);
  multiply<0, 4, 6>();
  exponents_of_slot<kHalves, 0, kSoftmax>(x);
  if (on) maxima<kRows>(y);
  stream_tile<7>(p + 32, 128);
  store_tile<1>(held + 16, 128);
  stream_tile<1>(to + 16, 128);
  multiply<1, 4, 7>();
  exponents_of_slot<kHalves, 1, kSoftmax>(x);
  if (on) maxima<kRows>(y);
  stream_tile<5>(v + 1024, 64);
  store_tile<2>(held + 512, 128);
  stream_tile<2>(to + 512, 128);
  multiply<2, 5, 6>();
  exponents_of_slot<kHalves, 2, kSoftmax>(x);
  if (on) maxima<kRows>(y);
  store_tile<3>(held + 528, 128);
  stream_tile<3>(to + 528, 128);
  multiply<3, 5, 7>();
  exponents_of_slot<kHalves, 3, kSoftmax>(x);
  if (on) {
    maxima<kRows>(y);
    y.left -= 4 * kRows;
  }
  next_slots<kHalves, kSoftmax>(x);
  fetch_ahead(ahead);
  for (int64_t i = 1; i < 2 * g.count; ++i) {
    v = g.v[i >> 1] + unit * 2048 + (i & 1) * 512;
    p += 1024;
    const bool more = kMaxima && y.left >= 4 * kRows;
    stream_tile<4>(v, 64);
    stream_tile<6>(p, 128);
    multiply<0, 4, 6>();
    exponents_of_slot<kHalves, 0, kSoftmax>(x);
    if (more) maxima<kRows>(y);
    stream_tile<7>(p + 32, 128);
    multiply<1, 4, 7>();
    exponents_of_slot<kHalves, 1, kSoftmax>(x);
    if (more) maxima<kRows>(y);
    stream_tile<5>(v + 1024, 64);
    multiply<2, 5, 6>();
    exponents_of_slot<kHalves, 2, kSoftmax>(x);
    if (more) maxima<kRows>(y);
    multiply<3, 5, 7>();
    exponents_of_slot<kHalves, 3, kSoftmax>(x);
    if (more) {
      maxima<kRows>(y);
      y.left -= 4 * kRows;
    }
    next_slots<kHalves, kSoftmax>(x);
    fetch_ahead(ahead);
  }
  return to;
}

// Returns what is held in tiles afterwards.
template <int kHalves, bool kSoftmax, bool kValues>
__attribute__((noinline)) float* run_step(const Step& j) {
  fence();
  Exponents x{};
  if constexpr (kSoftmax) {
    x = {all(j.factor),
         _mm512_load_ps(j.last->reference),
         _mm512_load_ps(j.last->reference + 16),
         _mm512_load_ps(j.last->sum),
         _mm512_load_ps(j.last->sum + 16),
         j.last_scores,
         j.p,
         64};
  }
  const char* ahead = j.ahead;
  float* held = multiply_scores<kHalves, kSoftmax>(j, x, ahead);
  const __m512 least = all(-__builtin_inff());
  Maxima y{least, least, j.scores, 64};
  if constexpr (kValues) {
    for (int64_t unit = 0; unit < j.units; ++unit) {
      held = multiply_values<kHalves, kSoftmax, true>(*j.ready, j.first_unit + unit, held, x, y,
                                                      ahead);
    }
  } else {
    store_held(held);
  }
  if constexpr (kSoftmax) {
    rest_of_exponents(x);
    _mm512_store_ps(j.last->sum, x.sum0);
    _mm512_store_ps(j.last->sum + 16, x.sum1);
  }
  for (; y.left > 0; y.left -= 4) maxima<4>(y);
  _mm512_store_ps(j.most, y.most0);
  _mm512_store_ps(j.most + 16, y.most1);
  fence();
  return held;
}

using RunStep = float* (*)(const Step&);
struct Kernels {
  RunStep scores, scores_softmax, all;
};
template <int kHalves>
constexpr Kernels kernels_of() {
  return {run_step<kHalves, false, false>, run_step<kHalves, true, false>,
          run_step<kHalves, true, true>};
}
const Kernels& kernels_for(int64_t steps) {
  static constexpr Kernels kTable[] = {kernels_of<16>(), kernels_of<8>(), kernels_of<6>(),
                                       kernels_of<4>(),  kernels_of<4>(), kernels_of<4>(),
                                       kernels_of<4>(),  kernels_of<2>()};
  return kTable[steps - 1];
}

// What run_step does for the step before, with nothing beside it.
void softmax_alone(const float* scores, Row& row, uint16_t* p, float factor) {
  fence();
  Exponents x{all(factor),
              _mm512_load_ps(row.reference),
              _mm512_load_ps(row.reference + 16),
              _mm512_load_ps(row.sum),
              _mm512_load_ps(row.sum + 16),
              scores,
              p,
              64};
  rest_of_exponents(x);
  _mm512_store_ps(row.sum, x.sum0);
  _mm512_store_ps(row.sum + 16, x.sum1);
  fence();
}
float* values_alone(const Group& g, int64_t first, int64_t last, float* held) {
  Exponents x{};
  Maxima y{};
  const char* ahead = nullptr;
  fence();
  for (int64_t unit = first; unit < last; ++unit) {
    held = multiply_values<4, false, false>(g, unit, held, x, y, ahead);
  }
  fence();
  return held;
}

// Applies scale, soft cap and mask to scores where the exponent cannot do it, and takes the maxima
// anew.
void adjust_scores(float* scores, const Shape& shape, const Row& row, bool partial, bool scaled,
                   const int32_t* position, const int32_t* segment, float* most) {
  const __m512 hidden = all(-__builtin_inff());
  const bool capped = shape.soft_cap != 0;
  const __m512 cap = all(shape.soft_cap), inverse = all(capped ? 1 / shape.soft_cap : 0);
  for (int64_t half = 0; half < 2; ++half) {
    __m512 top = hidden;
    for (int64_t j = 0; j < kKeys; ++j) {
      float* s = scores + j * 32 + half * 16;
      __m512 x = _mm512_load_ps(s);
      if (scaled) {
        x = _mm512_mul_ps(x, all(shape.scale));
        if (capped) x = _mm512_mul_ps(cap, tanh_exact(_mm512_mul_ps(x, inverse)));
      }
      if (partial) {
        x = _mm512_mask_mov_ps(hidden, see(row.mask, half, position[j], segment[j]), x);
      }
      _mm512_store_ps(s, x);
      top = _mm512_max_ps(top, x);
    }
    _mm512_store_ps(most + 16 * half, top);
  }
}

ODYSSEY_INLINE __mmask16 exceeds(__m512 score, __m512 reference) {
  return _mm512_cmp_ps_mask(score, _mm512_add_ps(reference, all(kSlack)), _CMP_GT_OQ);
}

// Whether the scores of a block, with these maxima, need another reference; updates `top`.
bool exceeds_reference(Row& row, const float* most, float factor) {
  __mmask16 any = 0;
  for (int64_t half = 0; half < 32; half += 16) {
    const __m512 now = _mm512_load_ps(most + half);
    _mm512_store_ps(row.top + half, _mm512_max_ps(_mm512_load_ps(row.top + half), now));
    any |= exceeds(_mm512_mul_ps(now, all(factor)), _mm512_load_ps(row.reference + half));
  }
  return any != 0;
}

// Raises the references that are exceeded, and only those: what a row sees may not change the
// rounding of another. p: probabilities of `tiles` key tiles that are
// not in the accumulator yet.
__attribute__((noinline)) void rescale(Row& row, const float* most, float factor, uint16_t* p,
                                       int64_t tiles, int64_t padded) {
  fence();
  for (int64_t half = 0; half < 32; half += 16) {
    const __m512 before = _mm512_load_ps(row.reference + half);
    const __m512 top = _mm512_mul_ps(_mm512_load_ps(most + half), all(factor));
    const __mmask16 far = exceeds(top, before);
    const __m512 now = _mm512_mask_mov_ps(before, far, top);
    _mm512_store_ps(row.reference + half, now);
    const __m512 sum = _mm512_load_ps(row.sum + half);
    if (_mm512_cmp_ps_mask(sum, _mm512_setzero_ps(), _CMP_NEQ_UQ) == 0) continue;
    const __m512 shrink = exp2_exact(_mm512_sub_ps(before, now));
    _mm512_store_ps(row.sum + half, _mm512_mul_ps(sum, shrink));
    for (int64_t d = 0; d < padded; ++d) {
      float* x = row.accumulator + d * 32 + half;
      _mm512_store_ps(x, _mm512_mul_ps(_mm512_load_ps(x), shrink));
    }
    for (int64_t pair = 0; pair < 32 * tiles; ++pair) {
      uint16_t* x = p + pair * 64 + half * 2;
      const __m512i both = _mm512_load_si512(x);
      const __m512 low = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
      const __m512 high = _mm512_castsi512_ps(
          _mm512_and_si512(both, _mm512_set1_epi32(static_cast<int32_t>(0xffff0000u))));
      _mm512_store_si512(x, pair_up(_mm512_mul_ps(low, shrink), _mm512_mul_ps(high, shrink)));
    }
  }
  fence();
}

void begin_row(const QueryBlock& block, const Shape& shape, Row& row, uint16_t* q) {
  pack_queries(block.q, block.q_stride, block.rows, shape, q);
  row.q = q;
  fill_mask(block, row.mask);
  bool empty = true;
  for (int64_t i = 0; i < kQueries; ++i) {
    const bool real = i < block.rows;
    row.reference[i] = real ? block.max[i] * kLog2E : kNothing;
    row.sum[i] = real ? block.sum[i] : 0;
    row.top[i] = -__builtin_inff();
    empty = empty && row.sum[i] == 0;
  }
  const int64_t padded = shape.padded();
  if (empty) {
    for (int64_t i = 0; i < padded * 32; i += 16) {
      _mm512_store_ps(row.accumulator + i, _mm512_setzero_ps());
    }
    return;
  }
  for (int64_t d = 0; d < padded; d += 16) {
    const __mmask16 columns = first16(shape.head_size - d);
    for (int64_t half = 0; half < 32; half += 16) {
      __m512i r[16];
      for (int64_t i = 0; i < 16; ++i) {
        const __mmask16 mask = half + i < block.rows ? columns : __mmask16{0};
        const int64_t at = mask != 0 ? (half + i) * block.accumulator_stride + d : 0;
        r[i] = _mm512_maskz_loadu_epi32(mask, block.accumulator + at);
      }
      transpose16(r);
      for (int64_t i = 0; i < 16; ++i) {
        _mm512_store_si512(row.accumulator + (d + i) * 32 + half, r[i]);
      }
    }
  }
}

// Writes the state of the rows that saw something back, relative to their true maximum.
void end_row(const QueryBlock& block, const Shape& shape, const Row& row, float to_score) {
  alignas(64) float most[kQueries], shrink[kQueries];
  bool saw[kQueries];
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
  for (int64_t d = 0; d < shape.head_size; d += 16) {
    const __mmask16 columns = first16(shape.head_size - d);
    for (int64_t half = 0; half < 32; half += 16) {
      __m512i r[16];
      const __m512 factor = _mm512_load_ps(shrink + half);
      for (int64_t i = 0; i < 16; ++i) {
        const __m512 x = _mm512_load_ps(row.accumulator + (d + i) * 32 + half);
        r[i] = _mm512_castps_si512(_mm512_mul_ps(x, factor));
      }
      transpose16(r);
      for (int64_t i = 0; i < 16; ++i) {
        if (!saw[half + i]) continue;
        float* to = block.accumulator + (half + i) * block.accumulator_stride + d;
        _mm512_mask_storeu_epi32(to, columns, r[i]);
      }
    }
  }
}

struct Memory {
  alignas(64) float dummy[1024];
  alignas(64) float most[2][kQueries];
  alignas(64) float scores[2][kKeys * kQueries];
  alignas(64) uint16_t p[2][kMostTiles * kKeys * kQueries];
  alignas(64) Row rows[kForwardBlocks];
  // Then accumulators and packed queries of all blocks.
};

// Walks over chunks, query blocks and visible tiles, two steps behind each other.
class Pipeline {
 public:
  Pipeline(const QueryBlock* blocks, int64_t count, const KeyHead& keys, const Shape& shape,
           Memory& memory)
      : blocks_(blocks),
        count_(count),
        keys_(keys),
        shape_(shape),
        memory_(memory),
        kernels_(kernels_for(shape.steps)),
        scaled_(shape.soft_cap != 0 || !(shape.scale > 1e-30f)),
        factor_(scaled_ ? kLog2E : shape.scale * kLog2E),
        held_(memory.dummy) {}

  void run() {
    // A step forms the scores of block n and the probabilities of block n - 1.
    Group group[3];  // of the scores, of the softmax, of P V
    Group *next = &group[0], *last = nullptr, *ready = nullptr;
    int64_t step = 0, units_done = 0;
    for (int64_t groups = 0; next_group(*next); ++groups) {
      next->p = memory_.p[groups & 1];
      for (int64_t t = 0; t < next->count; ++t, ++step) {
        // The block before is the last one of its group when this one is the first.
        const bool first = t == 0;
        Group* softmax = first ? last : next;
        const int64_t softmax_tile = first ? (last != nullptr ? last->count - 1 : 0) : t - 1;
        Step j = step_of(*next, t, step);
        RunStep kernel = kernels_.scores;
        if (softmax != nullptr) {
          prepare_softmax(*softmax, softmax_tile, step - 1, ready, units_done);
          j.last_scores = memory_.scores[(step - 1) & 1];
          j.last = softmax->row;
          j.p = softmax->p + softmax_tile * 2048;
          j.factor = factor_;
          kernel = kernels_.scores_softmax;
          if (ready != nullptr && units_done < shape_.steps) {
            const int64_t left = shape_.steps - units_done;
            const int64_t steps_left = softmax->count - softmax_tile;
            j.ready = ready;
            j.first_unit = units_done;
            j.units = (left + steps_left - 1) / steps_left;
            units_done += j.units;
            kernel = kernels_.all;
          }
        }
        j.held = held_;
        held_ = kernel(j);
        if (kernel != kernels_.all) held_ = memory_.dummy;
        adjust(*next, t, step);
        if (first && last != nullptr) {
          ready = last;
          units_done = 0;
        }
      }
      last = next;
      next = &group[(groups + 1) % 3];
    }
    if (last == nullptr) return;
    prepare_softmax(*last, last->count - 1, step - 1, ready, units_done);
    softmax_alone(memory_.scores[(step - 1) & 1], *last->row, last->p + (last->count - 1) * 2048,
                  factor_);
    if (ready != nullptr) held_ = values_alone(*ready, units_done, shape_.steps, held_);
    held_ = values_alone(*last, 0, shape_.steps, held_);
    store_held(held_);
    fence();
  }
  float to_score() const { return scaled_ ? 1 : shape_.scale; }

 private:
  bool next_group(Group& g) {
    const int64_t tiles = chunk_tiles(shape_);
    for (; chunk_ * tiles < keys_.tiles; ++chunk_, block_ = 0, steps_in_chunk_ = 0) {
      for (; block_ < count_; ++block_) {
        const QueryBlock& block = blocks_[block_];
        g.count = 0;
        for (int64_t t = chunk_ * tiles; t < keys_.tiles && t < (chunk_ + 1) * tiles; ++t) {
          if (block.seen[t] == Seen::kNone) continue;
          g.tiles[g.count] = t;
          g.partial[g.count] = block.seen[t] == Seen::kPart;
          g.v[g.count++] = keys_.v + t * kKeys * shape_.padded();
        }
        if (g.count == 0) continue;
        g.row = &memory_.rows[block_];
        g.block = &block;
        g.first_step = steps_in_chunk_;
        steps_in_chunk_ += g.count;
        ++block_;
        return true;
      }
    }
    return false;
  }

  Step step_of(const Group& g, int64_t t, int64_t step) const {
    Step j{};
    j.steps = shape_.steps;
    j.k = keys_.k + g.tiles[t] * kKeys * shape_.padded();
    j.q = g.row->q;
    j.scores = memory_.scores[step & 1];
    j.most = memory_.most[step & 1];
    // The keys of the next chunk and then its values, a share a step.
    const int64_t tiles = chunk_tiles(shape_), bytes = tiles * kKeys * shape_.padded() * 2;
    const int64_t share = shape_.steps * 1024, at = (g.first_step + t) * share;
    if ((chunk_ + 2) * tiles <= keys_.tiles && at < 2 * bytes) {
      const uint16_t* from = at < bytes ? keys_.k : keys_.v;
      const char* base = reinterpret_cast<const char*>(from) + (chunk_ + 1) * bytes;
      j.ahead = base + (at < bytes ? at : at - bytes);
    }
    return j;
  }

  void adjust(const Group& g, int64_t t, int64_t step) {
    if (!scaled_ && !g.partial[t]) return;
    const int64_t key = g.tiles[t] * kKeys;
    adjust_scores(memory_.scores[step & 1], shape_, *g.row, g.partial[t], scaled_,
                  keys_.position + key, keys_.segment + key, memory_.most[step & 1]);
  }

  // Rescales where a score is much larger than all before. What belongs to this row but is not in
  // its accumulator yet is added first.
  void prepare_softmax(Group& g, int64_t t, int64_t step, const Group* ready, int64_t& units_done) {
    if (!exceeds_reference(*g.row, memory_.most[step & 1], factor_)) return;
    if (ready != nullptr && ready->row == g.row && units_done < shape_.steps) {
      held_ = values_alone(*ready, units_done, shape_.steps, held_);
      units_done = shape_.steps;
    }
    store_held(held_);
    held_ = memory_.dummy;
    rescale(*g.row, memory_.most[step & 1], factor_, g.p, t, shape_.padded());
  }

  const QueryBlock* blocks_;
  int64_t count_;
  const KeyHead& keys_;
  const Shape& shape_;
  Memory& memory_;
  const Kernels& kernels_;
  bool scaled_;   // scale and cap are applied before the exponent
  float factor_;  // scores to exponents of 2
  float* held_;
  int64_t chunk_ = 0, block_ = 0, steps_in_chunk_ = 0;
};

}  // namespace

// As many units of P V as steps, so that every step runs the same number of products.
int64_t chunk_tiles(const Shape& shape) {
  return shape.steps < kMostTiles ? shape.steps : kMostTiles;
}

void pack_rows(const uint16_t* from, int64_t stride, int64_t rows, const Shape& shape,
               uint16_t* to) {
  for (int64_t row = 0; row < kKeys; ++row) {
    for (int64_t step = 0; step < shape.steps; ++step) {
      uint16_t* tile = to + (row / 16 * shape.steps + step) * 512;
      _mm512_store_si512(tile + row % 16 * 32,
                         load_row(from, stride, row, rows, step, shape.head_size));
    }
  }
}

// [2 * steps][2][16 columns][32 rows]
void pack_transposed(const uint16_t* from, int64_t stride, int64_t rows, const Shape& shape,
                     uint16_t* to) {
  for (int64_t part = 0; part < 2; ++part) {
    for (int64_t step = 0; step < shape.steps; ++step) {
      __m512i low[16], high[16];
      for (int64_t pair = 0; pair < 16; ++pair) {
        const int64_t row = part * 32 + 2 * pair;
        interleave(load_row(from, stride, row, rows, step, shape.head_size),
                   load_row(from, stride, row + 1, rows, step, shape.head_size), low[pair],
                   high[pair]);
      }
      transpose16(low);
      transpose16(high);
      for (int64_t d = 0; d < 16; ++d) {
        _mm512_store_si512(to + step * 2048 + part * 512 + d * 32, low[d]);
        _mm512_store_si512(to + step * 2048 + 1024 + part * 512 + d * 32, high[d]);
      }
    }
  }
}

int64_t forward_bytes(const Shape& shape, int64_t blocks) {
  return static_cast<int64_t>(sizeof(Memory)) + blocks * kQueries * shape.padded() * 6;
}

void forward(const QueryBlock* blocks, int64_t count, const KeyHead& keys, const Shape& shape,
             void* scratch) {
  const Tiles tiles;
  Memory& memory = *static_cast<Memory*>(scratch);
  const int64_t words = kQueries * shape.padded();
  float* accumulators = reinterpret_cast<float*>(&memory + 1);
  uint16_t* queries = reinterpret_cast<uint16_t*>(accumulators + count * words);
  for (int64_t b = 0; b < count; ++b) {
    memory.rows[b].accumulator = accumulators + b * words;
    begin_row(blocks[b], shape, memory.rows[b], queries + b * words);
  }
  Pipeline pipeline(blocks, count, keys, shape, memory);
  pipeline.run();
  for (int64_t b = 0; b < count; ++b) {
    end_row(blocks[b], shape, memory.rows[b], pipeline.to_score());
  }
}

}  // namespace odyssey::amx
