// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/attention_amx.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <limits>
#include <thread>

#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/attention_amx_work.h"
#include "odyssey/kernels/attention_finish.h"

namespace odyssey::amx {
namespace {

// With one thread the keys of one head stay in L2.
Cut forward_cut() {
  return {std::min<int64_t>(kHeadsAtOnce, thread_count()), kForwardBlocks};
}

// Many blocks share what it costs to load and store dK and dV. Fewer, and one head for one thread,
// leave room in L2 for all keys of the head, if those are few.
constexpr int64_t kFewKeyTiles = 8;
Cut backward_cut(int64_t key_tiles) {
  if (key_tiles > kFewKeyTiles) return {kHeadsAtOnce, kBackwardBlocks};
  return {std::min<int64_t>(kHeadsAtOnce, thread_count()), kBackwardBlocks / 2};
}

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

KeyHead head_of(const Call& call, RankScratch::Head& head) {
  return {head.k.data(),  head.v.data(),  head.k_t.data(),   call.position, call.segment,
          head.dk.data(), head.dv.data(), head.begun.data(), call.key_tiles};
}

// Zeros for dK and dV of `count` keys of a key/value head.
void clear_rows(const AttentionGradients& gradients, int64_t kv_head, int64_t first,
                int64_t count) {
  for (int64_t i = first; i < first + count; ++i) {
    for (const View<float, 3>& x : {gradients.dk, gradients.dv}) {
      std::fill_n(&x(i, kv_head, 0), x.extent(2), 0.0f);
    }
  }
}
// The same for key/value heads that no query head of this call reads.
void clear_unused_heads(const Call& call, const AttentionGradients& gradients) {
  for (int64_t g = 0; g < call.k.extent(1); ++g) {
    if (HeadPlan(call, g, 1).heads == 0) clear_rows(gradients, g, 0, call.k.extent(0));
  }
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
  for_heads(call, forward_cut(), [&](const HeadPlan* plans, int64_t count) {
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
                     const AttentionRows& rows, const AttentionOptions& options,
                     const AttentionGradients& gradients, const Poll& poll) {
  const View<float, 3> dq = gradients.dq, dk = gradients.dk, dv = gradients.dv;
  const Call call(q, k, v, rows, options);
  RankScratch& scratch = rank_scratch();
  for (RankScratch::Head& head : scratch.heads) {
    for (Buffer<uint16_t>* x : {&head.k, &head.v, &head.k_t}) grown(*x, call.words());
    for (Buffer<float>* x : {&head.dk, &head.dv}) grown(*x, call.words());
    grown(head.begun, call.key_tiles);
  }
  if (gradients.fresh_keys) clear_unused_heads(call, gradients);
  const Cut cut = backward_cut(call.key_tiles);
  for_heads(call, cut, [&](const HeadPlan* plans, int64_t count) {
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
        Item item(call, plans[i], own.item, gradients.fresh_queries);
        for (int64_t b = 0; b < item.count; ++b) {
          QueryBlock& block = item.blocks[b];
          const int64_t h = item.head[b], row = item.row[b];
          block.dout = bits(&dout(row, h, 0));
          block.dout_stride = dout.stride(0);
          block.max = const_cast<float*>(&lse(h, row));
          block.sum = const_cast<float*>(&delta(h, row));
          block.accumulator = &dq(row, h, 0);
          block.accumulator_stride = dq.stride(0);
          block.fresh = gradients.fresh_queries;
        }
        const Turns turns{Progress::wait, Progress::done, &own};
        if (item.count > 0) {
          backward(item.blocks, item.count, head_of(call, scratch.heads[i]), call.shape, turns,
                   thread_work(backward_bytes(call.shape, cut.blocks)));
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
      if (head.begun[t]) {
        const bool fresh = gradients.fresh_keys;
        add_gradient(head.dk.data() + at, tile_rows, call.shape, options.scale, fresh,
                     &dk(row, g, 0), dk.stride(0));
        add_gradient(head.dv.data() + at, tile_rows, call.shape, 1, fresh, &dv(row, g, 0),
                     dv.stride(0));
      } else if (gradients.fresh_keys) {
        clear_rows(gradients, g, row, tile_rows);
      }
    });
  });
}

int64_t scratch_bytes(int64_t forward_keys, int64_t backward_keys, int64_t head_size) {
  const Shape shape = shape_of(head_size, {});
  const int64_t backward_tiles = tiles_of(backward_keys, kKeys);
  const int64_t tiles = std::max(tiles_of(forward_keys, kKeys), backward_tiles);
  // Of two heads K and V in bf16; backward also K^T in bf16 and dK, dV in fp32; positions and
  // segments; a thread's work.
  const int64_t work =
      std::max(forward_bytes(shape, kForwardBlocks), backward_bytes(shape, kBackwardBlocks));
  return tiles * kKeys * (kHeadsAtOnce * 4 * shape.padded() + 8) +
         backward_tiles * kHeadsAtOnce * (kKeys * 10 * shape.padded() + 1) +
         thread_count() * (work + kForwardBlocks * tiles);
}

}  // namespace odyssey::amx
