// SPDX-License-Identifier: Apache-2.0
// Tile sums of the AMX backward: C += A B over a list of operand tiles, and how sums leave the
// tiles. Included only by files compiled with AMX flags; everything is in an anonymous namespace.
#pragma once
#include "odyssey/kernels/attention_tile_amx_simd.h"

namespace odyssey::amx {
namespace {

// Sums that are still in tiles 0 to 3, and where they belong. Each is stored just before the next
// products need its tile: four stores behind the last product would leave the tile unit idle.
// 32 x 32 words, the lower 16 rows at +below.
struct Held {
  float* to;
  int64_t below;
};
template <int kTile>
ODYSSEY_INLINE void store_one(const Held& held) {
  store_tile<kTile>(held.to + (kTile & 1) * 16 + (kTile >> 1) * held.below, 128);
}
ODYSSEY_INLINE void store_all(const Held& held) {
  store_one<0>(held);
  store_one<1>(held);
  store_one<2>(held);
  store_one<3>(held);
}

// One side of a sum of products: operand tiles stand at `base` + at[i] and, the second one, at
// + next.
struct Operand {
  const uint16_t* base;
  const int32_t* at;
  int64_t next, stride;
};
template <int kTile, bool kKeep>
ODYSSEY_INLINE void operand_tile(const uint16_t* from, int64_t stride) {
  if constexpr (kKeep) {
    load_tile<kTile>(from, stride);
  } else {
    stream_tile<kTile>(from, stride);
  }
}
// A sum that begins has nothing in memory to be added to.
template <int kTile>
ODYSSEY_INLINE void begin_sum(bool begun, const float* from) {
  if (begun) {
    stream_tile<kTile>(from, 128);
  } else {
    zero_tile<kTile>();
  }
}
// C[32 x 32 words] = (begun: +=) sum over i < count of A_i B_i. kKeepA: A is used again soon, else
// B is.
template <bool kKeepA>
ODYSSEY_INLINE Held add_products(const Operand& a, const Operand& b, int64_t count, bool begun,
                                 Held c, Held held) {
  const uint16_t* x = a.base + a.at[0];
  const uint16_t* y = b.base + b.at[0];
  operand_tile<4, kKeepA>(x, a.stride);
  operand_tile<6, !kKeepA>(y, b.stride);
  store_one<0>(held);
  begin_sum<0>(begun, c.to);
  multiply<0, 4, 6>();
  operand_tile<7, !kKeepA>(y + b.next, b.stride);
  store_one<1>(held);
  begin_sum<1>(begun, c.to + 16);
  multiply<1, 4, 7>();
  operand_tile<5, kKeepA>(x + a.next, a.stride);
  store_one<2>(held);
  begin_sum<2>(begun, c.to + c.below);
  multiply<2, 5, 6>();
  store_one<3>(held);
  begin_sum<3>(begun, c.to + c.below + 16);
  multiply<3, 5, 7>();
  for (int64_t i = 1; i < count; ++i) {
    x = a.base + a.at[i];
    y = b.base + b.at[i];
    operand_tile<4, kKeepA>(x, a.stride);
    operand_tile<6, !kKeepA>(y, b.stride);
    multiply<0, 4, 6>();
    operand_tile<7, !kKeepA>(y + b.next, b.stride);
    multiply<1, 4, 7>();
    operand_tile<5, kKeepA>(x + a.next, a.stride);
    multiply<2, 5, 6>();
    multiply<3, 5, 7>();
  }
  return c;
}

}  // namespace
}  // namespace odyssey::amx
