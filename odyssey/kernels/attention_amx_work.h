// SPDX-License-Identifier: Apache-2.0
// How a call of bf16 block attention on matrix tiles is cut: key/value heads that are worked on
// together, items of query blocks for the threads, and the memory that both keep.
#pragma once
#include <algorithm>
#include <cstdint>

#include "odyssey/base/buffer.h"
#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/attention_amx.h"

namespace odyssey::amx {

// Key/value heads that are packed and worked on at once: two, so that two threads have work of
// their own even where the backward passes of one head have to take turns.
inline constexpr int64_t kHeadsAtOnce = 2;

// How a pass is cut: heads at once, query blocks of an item.
struct Cut {
  int64_t heads, blocks;
};

template <class T>
T* grown(Buffer<T>& buffer, int64_t size) {
  if (buffer.size() < size) buffer = Buffer<T>(size);
  return buffer.data();
}

inline int64_t tiles_of(int64_t rows, int64_t tile) {
  return (rows + tile - 1) / tile;
}

Shape shape_of(int64_t head_size, const AttentionOptions& options);

inline const uint16_t* bits(const bf16* x) {
  return reinterpret_cast<const uint16_t*>(x);
}

// Memory that a rank, and a thread, keeps from call to call.
struct RankScratch {
  struct Head {
    Buffer<uint16_t> k, v, k_t;
    Buffer<float> dk, dv;
    Buffer<bool> begun;  // of each key tile: whether dk and dv hold anything
  };
  Head heads[kHeadsAtOnce];
  Buffer<int32_t> position, segment;
  Buffer<int64_t> progress;
};
RankScratch& rank_scratch();

struct ThreadScratch {
  Buffer<std::byte> work;
  Buffer<Seen> seen;
};
ThreadScratch& thread_scratch();

// What all items of one call share.
struct Call {
  View<const bf16, 3> q, k, v;
  const AttentionRows& rows;
  const AttentionOptions& options;
  Shape shape;
  const int32_t *position, *segment;  // of the keys, padded to whole tiles
  int64_t key_tiles;

  Call(View<const bf16, 3> q_in, View<const bf16, 3> k_in, View<const bf16, 3> v_in,
       const AttentionRows& rows_in, const AttentionOptions& options_in);
  int64_t words() const { return key_tiles * kKeys * shape.padded(); }
  int64_t rows_of_tile(int64_t t) const { return std::min(kKeys, k.extent(0) - t * kKeys); }
};

// The query heads of one key/value head, cut into items of up to `most_blocks` query blocks.
struct HeadPlan {
  int64_t kv_head = 0, first_head = 0, heads = 0;
  int64_t heads_an_item = 1, blocks_an_item = 1, head_pieces = 0, query_pieces = 0;

  HeadPlan() = default;
  HeadPlan(const Call& call, int64_t g, int64_t most_blocks);
  int64_t items() const { return head_pieces * query_pieces; }
};

// The query blocks of one item that see any key.
class Item {
 public:
  // Late queries see the most keys under a causal mask: the longest items come first.
  // all: also blocks that see nothing.
  Item(const Call& call, const HeadPlan& plan, int64_t item, bool all);
  int64_t count = 0;
  QueryBlock blocks[kForwardBlocks];
  int64_t row[kForwardBlocks], head[kForwardBlocks];  // first row and query head

 private:
  void add(const Call& call, int64_t qt, int64_t h, const Seen* seen);
};

// Calls body(plans, count) for key/value heads that are worked on together.
template <class Body>
void for_heads(const Call& call, const Cut& cut, const Body& body) {
  for (int64_t g = 0; g < call.k.extent(1); g += cut.heads) {
    HeadPlan plans[kHeadsAtOnce];
    int64_t count = 0;
    for (int64_t i = g; i < std::min(g + cut.heads, call.k.extent(1)); ++i) {
      const HeadPlan plan(call, i, cut.blocks);
      if (plan.heads > 0) plans[count++] = plan;
    }
    if (count > 0) body(plans, count);
  }
}

int64_t most_items(const HeadPlan* plans, int64_t count);

// Calls body(head, tile) for all key tiles of `count` heads, some at a time.
template <class Body>
void for_key_tiles(const Call& call, int64_t count, const Body& body) {
  parallel_ranges(count * call.key_tiles, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i / call.key_tiles, i % call.key_tiles);
  });
}

}  // namespace odyssey::amx
