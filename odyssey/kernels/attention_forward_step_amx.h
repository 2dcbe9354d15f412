// SPDX-License-Identifier: Apache-2.0
// One step of bf16 block attention forward: the scores of a key tile x 32 queries on tiles,
// while vector code turns the scores of the step before into probabilities, and then a share of P V
// of the key chunk before: the tile unit and the vector units work side by side. Included only by
// files compiled with AMX flags.
#pragma once
#include "odyssey/kernels/attention_softmax_amx.h"

namespace odyssey::amx {
namespace {

constexpr int64_t kMostTiles = 4;  // key tiles of one chunk

// The key tiles of one chunk that a query block sees.
struct Group {
  Row* row;
  bool fresh;  // its sums are the first of the row
  int64_t count, first_step;
  int64_t tiles[kMostTiles];
  bool partial[kMostTiles];
  uint16_t* p;  // [32 * count key pairs][32 queries][2] in squares
  const uint16_t* v[kMostTiles];
  const char* ahead;  // what to fetch into L2 meanwhile, or nullptr
};

struct Step {
  int64_t steps;
  const uint16_t *k, *q;
  float* scores;  // [64][32] in squares
  // The step before.
  const float* last_scores;
  Row* last;
  uint16_t* p;
  float factor;
  // Units of P V: 32 columns of V each, over the whole group.
  const Group* ready;
  int64_t first_unit, units;
  // Where the four sums still in tiles belong: 32 x 32 words in squares.
  float* held;
  float *sum, *most;  // [32] out: of the step before; most only with maxima
  const char* ahead;
};

ODYSSEY_INLINE void store_held(float* held) {
  store_tile<0>(held, 64);
  store_tile<1>(held + 256, 64);
  store_tile<2>(held + 512, 64);
  store_tile<3>(held + 768, 64);
}

// The sums that P V of this step adds to, 8 lines beside every 4 products of scores. They may have
// left L1, and their tiles are free only just before they are needed (measured 1 to 2 %).
ODYSSEY_INLINE void fetch_sums(const char*& sums) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) _mm_prefetch(sums + 64 * i, _MM_HINT_T0);
  sums += 512;
}

ODYSSEY_INLINE void fetch_ahead(const char*& ahead) {
  if (ahead == nullptr) return;
  _mm_prefetch(ahead, _MM_HINT_T1);
  _mm_prefetch(ahead + 64, _MM_HINT_T1);
  _mm_prefetch(ahead + 128, _MM_HINT_T1);
  _mm_prefetch(ahead + 192, _MM_HINT_T1);
  ahead += 256;
}

// Scores of the key tile of a step x 32 queries; the last 32 x 32 of them stay in tiles (returned
// as held). Sums left in tiles are stored one by one just before their tile is needed: four stores
// at once would drain the tile unit. Beside these products run at most the 64
// half-operations of one key tile, so they are not counted here.
template <int kHalves, Beside kBeside, bool kValues>
ODYSSEY_INLINE float* multiply_scores(const Step& j, Exponents& x, const char*& ahead) {
  float* held = j.held;
  const char* sums = nullptr;
  if constexpr (kValues) {
    sums = reinterpret_cast<const char*>(j.ready->row->accumulator + j.first_unit * 1024);
  }
  for (int64_t part = 0; part < 2; ++part) {
    const uint16_t* k = j.k + part * 1024 * j.steps;
    const uint16_t* k_below = k + 512 * j.steps;
    const uint16_t* q = j.q;
    stream_tile<4>(k, 64);
    load_tile<6>(q, 64);
    store_tile<0>(held, 64);
    zero_tile<0>();
    multiply<0, 4, 6>();
    exponents_of_slot<kHalves, 0, kBeside>(x);
    load_tile<7>(q + 512, 64);
    store_tile<1>(held + 256, 64);
    zero_tile<1>();
    multiply<1, 4, 7>();
    exponents_of_slot<kHalves, 1, kBeside>(x);
    stream_tile<5>(k_below, 64);
    store_tile<2>(held + 512, 64);
    zero_tile<2>();
    multiply<2, 5, 6>();
    exponents_of_slot<kHalves, 2, kBeside>(x);
    store_tile<3>(held + 768, 64);
    zero_tile<3>();
    multiply<3, 5, 7>();
    exponents_of_slot<kHalves, 3, kBeside>(x);
    next_slots<kHalves, kBeside>(x);
    if constexpr (kValues) fetch_sums(sums);
    fetch_ahead(ahead);
    for (int64_t step = 1; step < j.steps; ++step) {
      k += 512;
      k_below += 512;
      q += 1024;
      stream_tile<4>(k, 64);
      load_tile<6>(q, 64);
      multiply<0, 4, 6>();
      exponents_of_slot<kHalves, 0, kBeside>(x);
      load_tile<7>(q + 512, 64);
      multiply<1, 4, 7>();
      exponents_of_slot<kHalves, 1, kBeside>(x);
      stream_tile<5>(k_below, 64);
      multiply<2, 5, 6>();
      exponents_of_slot<kHalves, 2, kBeside>(x);
      multiply<3, 5, 7>();
      exponents_of_slot<kHalves, 3, kBeside>(x);
      next_slots<kHalves, kBeside>(x);
      if constexpr (kValues) fetch_sums(sums);
      fetch_ahead(ahead);
    }
    held = j.scores + part * 1024;
  }
  return held;
}

template <int kTile>
ODYSSEY_INLINE void begin_sum(const float* from, bool fresh) {
  if (fresh) {
    zero_tile<kTile>();
  } else {
    stream_tile<kTile>(from, 64);
  }
}

// Products of 32 keys of a group into the four sums, which change first if kFirst: what is held is
// stored, the sums `to` are loaded or, if fresh, zero.
template <int kHalves, Beside kBeside, bool kFirst>
ODYSSEY_INLINE void multiply_keys(const uint16_t* v, const uint16_t* p, float* held,
                                  const float* to, bool fresh, Exponents& x, const char*& ahead) {
  stream_tile<4>(v, 64);
  stream_tile<6>(p, 64);
  if constexpr (kFirst) store_tile<0>(held, 64);
  if constexpr (kFirst) begin_sum<0>(to, fresh);
  multiply<0, 4, 6>();
  exponents_of_slot<kHalves, 0, kBeside>(x);
  stream_tile<7>(p + 512, 64);
  if constexpr (kFirst) store_tile<1>(held + 256, 64);
  if constexpr (kFirst) begin_sum<1>(to + 256, fresh);
  multiply<1, 4, 7>();
  exponents_of_slot<kHalves, 1, kBeside>(x);
  stream_tile<5>(v + 1024, 64);
  if constexpr (kFirst) store_tile<2>(held + 512, 64);
  if constexpr (kFirst) begin_sum<2>(to + 512, fresh);
  multiply<2, 5, 6>();
  exponents_of_slot<kHalves, 2, kBeside>(x);
  if constexpr (kFirst) store_tile<3>(held + 768, 64);
  if constexpr (kFirst) begin_sum<3>(to + 768, fresh);
  multiply<3, 5, 7>();
  exponents_of_slot<kHalves, 3, kBeside>(x);
  next_slots<kHalves, kBeside>(x);
  fetch_ahead(ahead);
}

// accumulator[32 columns of V][32 queries] += V^T P over the keys of a group; the sum stays in
// tiles. Returns where it belongs.
template <int kHalves, Beside kBeside>
ODYSSEY_INLINE float* multiply_values(const Group& g, int64_t unit, float* held, Exponents& x,
                                      const char*& ahead) {
  float* to = g.row->accumulator + unit * 1024;
  const uint16_t* p = g.p;
  const int64_t at = unit * 2048, parts = 2 * g.count;
  int64_t i = 1;
  if (kBeside != Beside::kNone && x.left >= kHalves) {
    const int64_t left = x.left / kHalves, beside = left < parts ? left : parts;
    multiply_keys<kHalves, kBeside, true>(g.v[0] + at, p, held, to, g.fresh, x, ahead);
    for (; i < beside; ++i) {
      multiply_keys<kHalves, kBeside, false>(g.v[i >> 1] + at + (i & 1) * 512, p + i * 1024,
                                             nullptr, nullptr, false, x, ahead);
    }
  } else {
    multiply_keys<kHalves, Beside::kNone, true>(g.v[0] + at, p, held, to, g.fresh, x, ahead);
  }
  for (; i < parts; ++i) {
    multiply_keys<kHalves, Beside::kNone, false>(g.v[i >> 1] + at + (i & 1) * 512, p + i * 1024,
                                                 nullptr, nullptr, false, x, ahead);
  }
  return to;
}

// Returns what is held in tiles afterwards.
template <int kHalves, Beside kBeside, bool kValues>
__attribute__((noinline)) float* run_step(const Step& j) {
  fence();
  Exponents x{};
  if constexpr (kBeside != Beside::kNone) {
    x = begin_exponents(*j.last, j.last_scores, j.factor, j.p);
  }
  const char* ahead = j.ahead;
  float* held = multiply_scores<kHalves, kBeside, kValues>(j, x, ahead);
  if constexpr (kValues) {
    for (int64_t unit = 0; unit < j.units; ++unit) {
      held = multiply_values<kHalves, kBeside>(*j.ready, j.first_unit + unit, held, x, ahead);
    }
  } else {
    store_held(held);
  }
  if constexpr (kBeside != Beside::kNone) end_exponents<kBeside>(x, j.sum, j.most);
  fence();
  return held;
}

using RunStep = float* (*)(const Step&);
struct Kernels {
  RunStep scores, scores_softmax, all;
};
template <int kHalves, Beside kBeside>
constexpr Kernels kernels_of() {
  return {run_step<kHalves, Beside::kNone, false>, run_step<kHalves, kBeside, false>,
          run_step<kHalves, kBeside, true>};
}
template <Beside kBeside>
const Kernels& kernels_for(int64_t steps) {
  static constexpr Kernels kTable[] = {kernels_of<16, kBeside>(), kernels_of<8, kBeside>(),
                                       kernels_of<8, kBeside>(),  kernels_of<4, kBeside>(),
                                       kernels_of<4, kBeside>(),  kernels_of<4, kBeside>(),
                                       kernels_of<4, kBeside>(),  kernels_of<2, kBeside>()};
  return kTable[steps - 1];
}

// What run_step does for the step before, with nothing beside it. sum, most: [32] out.
void softmax_alone(const float* scores, const Row& row, uint16_t* p, float factor, float* sum,
                   float* most) {
  fence();
  Exponents x = begin_exponents(row, scores, factor, p);
  end_exponents<Beside::kSoftmaxAndMaxima>(x, sum, most);
  fence();
}
float* values_alone(const Group& g, int64_t first, int64_t last, float* held) {
  Exponents x{};
  const char* ahead = nullptr;
  fence();
  for (int64_t unit = first; unit < last; ++unit) {
    held = multiply_values<4, Beside::kNone>(g, unit, held, x, ahead);
  }
  fence();
  return held;
}

}  // namespace
}  // namespace odyssey::amx
