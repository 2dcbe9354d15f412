// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/attention_amx.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <thread>

#include "odyssey/base/buffer.h"
#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/attention_finish.h"

namespace odyssey::amx {
namespace {

// Key/value heads that are packed and worked on at once: two, so that two threads have work of
// their own even where the backward passes of one head have to take turns.
constexpr int64_t kHeadsAtOnce = 2;

template <class T>
T* grown(Buffer<T>& buffer, int64_t size) {
  if (buffer.size() < size) buffer = Buffer<T>(size);
  return buffer.data();
}

int64_t tiles_of(int64_t rows, int64_t tile) {
  return (rows + tile - 1) / tile;
}

Shape shape_of(int64_t head_size, const AttentionOptions& options) {
  return {head_size, tiles_of(head_size, 32), options.scale, options.soft_cap};
}

const uint16_t* bits(const bf16* x) {
  return reinterpret_cast<const uint16_t*>(x);
}

// Memory that a rank, and a thread, keeps from call to call.
struct RankScratch {
  struct Head {
    Buffer<uint16_t> k, v, k_t;
    Buffer<float> dk, dv;
    Buffer<bool> begun;
  };
  Head heads[kHeadsAtOnce];
  Buffer<int32_t> position, segment;
  Buffer<int64_t> progress;
};
RankScratch& rank_scratch() {
  thread_local RankScratch scratch;
  return scratch;
}
struct ThreadScratch {
  Buffer<std::byte> work;
  Buffer<Seen> seen;
};
ThreadScratch& thread_scratch() {
  thread_local ThreadScratch scratch;
  return scratch;
}

// What all items of one call share.
struct Call {
  View<const bf16, 3> q, k, v;
  const AttentionRows& rows;
  const AttentionOptions& options;
  Shape shape;
  const int32_t *position, *segment;  // of the keys, padded to whole tiles
  int64_t key_tiles;

  Call(View<const bf16, 3> q_in, View<const bf16, 3> k_in, View<const bf16, 3> v_in,
       const AttentionRows& rows_in, const AttentionOptions& options_in)
      : q(q_in),
        k(k_in),
        v(v_in),
        rows(rows_in),
        options(options_in),
        shape(shape_of(q_in.extent(2), options_in)),
        key_tiles(tiles_of(k_in.extent(0), kKeys)) {
    RankScratch& scratch = rank_scratch();
    const int64_t keys = rows.keys(), padded = key_tiles * kKeys;
    int32_t* at = grown(scratch.position, padded);
    int32_t* id = grown(scratch.segment, padded);
    std::copy(rows.position(), rows.position() + keys, at);
    std::copy(rows.key_segment(), rows.key_segment() + keys, id);
    std::fill(at + keys, at + padded, 0);
    std::fill(id + keys, id + padded, 0);
    position = at;
    segment = id;
  }
  int64_t words() const { return key_tiles * kKeys * shape.padded(); }
  int64_t rows_of_tile(int64_t t) const { return std::min(kKeys, k.extent(0) - t * kKeys); }
};

// The query heads of one key/value head, cut into items of up to `most_blocks` query blocks.
struct HeadPlan {
  int64_t kv_head = 0, first_head = 0, heads = 0;
  int64_t heads_an_item = 1, blocks_an_item = 1, head_pieces = 0, query_pieces = 0;

  HeadPlan() = default;
  HeadPlan(const Call& call, int64_t g, int64_t most_blocks) : kv_head(g) {
    const int64_t all = call.q.extent(1);
    first_head = call.options.first_query_head(g, all);
    heads = call.options.first_query_head(g + 1, all) - first_head;
    if (heads == 0) return;
    heads_an_item = std::min(heads, most_blocks);
    blocks_an_item = most_blocks / heads_an_item;
    head_pieces = tiles_of(heads, heads_an_item);
    query_pieces = tiles_of(tiles_of(call.q.extent(0), kQueries), blocks_an_item);
  }
  int64_t items() const { return head_pieces * query_pieces; }
};

// The query blocks of one item that see any key.
class Item {
 public:
  // Late queries see the most keys under a causal mask: the longest items come first.
  // all: also blocks that see nothing.
  Item(const Call& call, const HeadPlan& plan, int64_t item, bool all) {
    const int64_t piece = plan.query_pieces - 1 - item / plan.head_pieces;
    const int64_t first = plan.first_head + item % plan.head_pieces * plan.heads_an_item;
    const int64_t last = std::min(first + plan.heads_an_item, plan.first_head + plan.heads);
    const int64_t begin = piece * plan.blocks_an_item;
    const int64_t end = std::min(begin + plan.blocks_an_item, tiles_of(call.q.extent(0), kQueries));
    Seen* seen = grown(thread_scratch().seen, plan.blocks_an_item * call.key_tiles);
    for (int64_t qt = begin; qt < end; ++qt, seen += call.key_tiles) {
      if (!find_seen(call, qt, seen) && !all) continue;
      for (int64_t h = first; h < last; ++h) add(call, qt, h, seen);
    }
  }
  int64_t count = 0;
  QueryBlock blocks[kForwardBlocks];
  int64_t row[kForwardBlocks], head[kForwardBlocks];  // first row and query head

 private:
  static bool find_seen(const Call& call, int64_t qt, Seen* seen) {
    bool any = false;
    for (int64_t t = 0; t < call.key_tiles; ++t) {
      const Visibility visible = call.rows.tile(qt, t);
      const bool ragged = call.rows_of_tile(t) < kKeys;
      seen[t] = visible == Visibility::kHidden              ? Seen::kNone
                : visible == Visibility::kPartial || ragged ? Seen::kPart
                                                            : Seen::kAll;
      any = any || seen[t] != Seen::kNone;
    }
    return any;
  }
  void add(const Call& call, int64_t qt, int64_t h, const Seen* seen) {
    const int64_t first = qt * kQueries;
    QueryBlock& block = blocks[count];
    block = {};
    block.q = bits(&call.q(first, h, 0));
    block.q_stride = call.q.stride(0);
    block.rows = std::min(kQueries, call.q.extent(0) - first);
    block.least = call.rows.least() + first;
    block.most = call.rows.most() + first;
    block.segment = call.rows.query_segment() + first;
    block.seen = seen;
    row[count] = first;
    head[count++] = h;
  }
};

// What forward() asks: the end of the softmax of a block's rows.
struct Finisher {
  const AttentionState& state;
  const Output* output;
  const Item& item;

  static void factors(void* context, int64_t block, float* factors) {
    const Finisher& own = *static_cast<const Finisher*>(context);
    const int64_t h = own.item.head[block], first = own.item.row[block];
    for (int64_t i = 0; i < own.item.blocks[block].rows; ++i) {
      factors[i] =
          finish_row(own.state, own.output->sinks, h, first + i, own.output->lse(h, first + i));
    }
  }
};

std::byte* thread_work(int64_t bytes) {
  return grown(thread_scratch().work, bytes);
}

// Calls body(plans, count) for key/value heads that are worked on together.
template <class Body>
void for_heads(const Call& call, int64_t most_blocks, const Body& body) {
  for (int64_t g = 0; g < call.k.extent(1); g += kHeadsAtOnce) {
    HeadPlan plans[kHeadsAtOnce];
    int64_t count = 0;
    for (int64_t i = g; i < std::min(g + kHeadsAtOnce, call.k.extent(1)); ++i) {
      const HeadPlan plan(call, i, most_blocks);
      if (plan.heads > 0) plans[count++] = plan;
    }
    if (count > 0) body(plans, count);
  }
}

int64_t most_items(const HeadPlan* plans, int64_t count) {
  int64_t most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, plans[i].items());
  return most;
}

// Calls body(head, tile) for all key tiles of `count` heads, some at a time.
template <class Body>
void for_key_tiles(const Call& call, int64_t count, const Body& body) {
  parallel_ranges(count * call.key_tiles, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i / call.key_tiles, i % call.key_tiles);
  });
}

KeyHead head_of(const Call& call, RankScratch::Head& head) {
  return {head.k.data(),  head.v.data(),  head.k_t.data(),   call.position, call.segment,
          head.dk.data(), head.dv.data(), head.begun.data(), call.key_tiles};
}

// The order in which the items of one head add to dK and dV, whatever thread runs them: a chunk of
// keys is added to by the items in ascending order. Items are also started in that order, so the
// one that is waited for always runs.
struct Progress {
  int64_t* chunks;  // of each item: how many chunks of keys it is through with
  int64_t item;

  static void wait(void* context, int64_t chunk) {
    const Progress& own = *static_cast<const Progress*>(context);
    for (int64_t i = own.item - 1; i >= 0; --i) {
      for (int64_t spins = 0;
           std::atomic_ref<int64_t>(own.chunks[i]).load(std::memory_order_acquire) <= chunk;
           ++spins) {
        if (spins > 100) std::this_thread::yield();
      }
    }
  }
  static void done(void* context, int64_t chunk) {
    const Progress& own = *static_cast<const Progress*>(context);
    std::atomic_ref<int64_t>(own.chunks[own.item]).store(chunk + 1, std::memory_order_release);
  }
};

}  // namespace

void attend(View<const bf16, 3> q, View<const bf16, 3> k, View<const bf16, 3> v,
            const AttentionRows& rows, const AttentionOptions& options, const AttentionState& state,
            const Output* output, const Poll& poll) {
  const Call call(q, k, v, rows, options);
  RankScratch& scratch = rank_scratch();
  for (RankScratch::Head& head : scratch.heads) {
    grown(head.k, call.words());
    grown(head.v, call.words());
  }
  for_heads(call, kForwardBlocks, [&](const HeadPlan* plans, int64_t count) {
    for_key_tiles(call, count, [&](int64_t i, int64_t t) {
      const int64_t row = t * kKeys, g = plans[i].kv_head, at = row * call.shape.padded();
      const int64_t tile_rows = call.rows_of_tile(t);
      pack_rows(bits(&k(row, g, 0)), k.stride(0), tile_rows, call.shape,
                scratch.heads[i].k.data() + at);
      pack_transposed(bits(&v(row, g, 0)), v.stride(0), tile_rows, call.shape,
                      scratch.heads[i].v.data() + at);
    });
    parallel_for(most_items(plans, count) * count, [&](int64_t index) {
      const HeadPlan& plan = plans[index % count];
      if (index / count >= plan.items()) return;
      Item item(call, plan, index / count, output != nullptr);
      for (int64_t b = 0; b < item.count; ++b) {
        QueryBlock& block = item.blocks[b];
        block.max = &state.max(item.head[b], item.row[b]);
        block.sum = &state.sum(item.head[b], item.row[b]);
        block.accumulator = &state.accumulator(item.row[b], item.head[b], 0);
        block.accumulator_stride = state.accumulator.stride(0);
        if (output == nullptr) continue;
        block.out = reinterpret_cast<uint16_t*>(&output->out(item.row[b], item.head[b], 0));
        block.out_stride = output->out.stride(0);
      }
      if (item.count > 0) {
        Finisher finisher{state, output, item};
        forward(item.blocks, item.count, head_of(call, scratch.heads[index % count]), call.shape,
                {Finisher::factors, &finisher},
                thread_work(forward_bytes(call.shape, kForwardBlocks)));
      }
      if (is_calling_thread()) poll();
    });
  });
}

void attend_backward(View<const bf16, 3> q, View<const bf16, 3> k, View<const bf16, 3> v,
                     View<const bf16, 3> dout, View<const float, 2> lse, View<const float, 2> delta,
                     const AttentionRows& rows, const AttentionOptions& options, View<float, 3> dq,
                     View<float, 3> dk, View<float, 3> dv, const Poll& poll) {
  const Call call(q, k, v, rows, options);
  RankScratch& scratch = rank_scratch();
  for (RankScratch::Head& head : scratch.heads) {
    for (Buffer<uint16_t>* x : {&head.k, &head.v, &head.k_t}) grown(*x, call.words());
    for (Buffer<float>* x : {&head.dk, &head.dv}) grown(*x, call.words());
    grown(head.begun, call.key_tiles);
  }
  for_heads(call, kBackwardBlocks, [&](const HeadPlan* plans, int64_t count) {
    for_key_tiles(call, count, [&](int64_t i, int64_t t) {
      const int64_t row = t * kKeys, g = plans[i].kv_head;
      const int64_t at = row * call.shape.padded();
      const int64_t tile_rows = call.rows_of_tile(t);
      RankScratch::Head& head = scratch.heads[i];
      pack_rows(bits(&k(row, g, 0)), k.stride(0), tile_rows, call.shape, head.k.data() + at);
      pack_rows(bits(&v(row, g, 0)), v.stride(0), tile_rows, call.shape, head.v.data() + at);
      pack_transposed(bits(&k(row, g, 0)), k.stride(0), tile_rows, call.shape,
                      head.k_t.data() + at);
      head.begun[t] = false;
    });
    const int64_t items = most_items(plans, count);
    int64_t* progress = grown(scratch.progress, items * count);
    std::fill_n(progress, items * count, 0);
    std::atomic<int64_t> next{0};
    const auto run = [&](int64_t index) {
      const int64_t i = index % count;
      Progress own{progress + i * items, index / count};
      if (own.item < plans[i].items()) {
        Item item(call, plans[i], own.item, false);
        for (int64_t b = 0; b < item.count; ++b) {
          QueryBlock& block = item.blocks[b];
          const int64_t h = item.head[b], row = item.row[b];
          block.dout = bits(&dout(row, h, 0));
          block.dout_stride = dout.stride(0);
          block.max = const_cast<float*>(&lse(h, row));
          block.sum = const_cast<float*>(&delta(h, row));
          block.accumulator = &dq(row, h, 0);
          block.accumulator_stride = dq.stride(0);
        }
        const Turns turns{Progress::wait, Progress::done, &own};
        if (item.count > 0) {
          backward(item.blocks, item.count, head_of(call, scratch.heads[i]), call.shape, turns,
                   thread_work(backward_bytes(call.shape, kBackwardBlocks)));
        }
      }
      Progress::done(&own, std::numeric_limits<int64_t>::max() - 1);
      if (is_calling_thread()) poll();
    };
    // Not the items themselves: they must start in ascending order.
    parallel_for(thread_count(), [&](int64_t) {
      for (int64_t i; (i = next++) < items * count;) run(i);
    });
    for_key_tiles(call, count, [&](int64_t i, int64_t t) {
      const int64_t row = t * kKeys, g = plans[i].kv_head, at = row * call.shape.padded();
      const int64_t tile_rows = call.rows_of_tile(t);
      const RankScratch::Head& head = scratch.heads[i];
      if (!head.begun[t]) return;
      add_gradient(head.dk.data() + at, tile_rows, call.shape, options.scale, &dk(row, g, 0),
                   dk.stride(0));
      add_gradient(head.dv.data() + at, tile_rows, call.shape, 1, &dv(row, g, 0), dv.stride(0));
    });
  });
}

int64_t scratch_bytes(int64_t rows, int64_t head_size) {
  const Shape shape = shape_of(head_size, {});
  const int64_t tiles = tiles_of(rows, kKeys), padded_rows = tiles * kKeys;
  // Of two heads K, V, K^T in bf16 and dK, dV in fp32; positions and segments; a thread's work.
  const int64_t work =
      std::max(forward_bytes(shape, kForwardBlocks), backward_bytes(shape, kBackwardBlocks));
  return padded_rows * (kHeadsAtOnce * 14 * shape.padded() + 8) +
         thread_count() * (work + kForwardBlocks * tiles);
}

}  // namespace odyssey::amx
