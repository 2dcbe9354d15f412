// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/attention_amx_work.h"

namespace odyssey::amx {

Shape shape_of(int64_t head_size, const AttentionOptions& options) {
  return {head_size, tiles_of(head_size, 32), options.scale, options.soft_cap, options.record_max};
}

RankScratch& rank_scratch() {
  thread_local RankScratch scratch;
  return scratch;
}
ThreadScratch& thread_scratch() {
  thread_local ThreadScratch scratch;
  return scratch;
}

Call::Call(View<const bf16, 3> q_in, View<const bf16, 3> k_in, View<const bf16, 3> v_in,
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

HeadPlan::HeadPlan(const Call& call, int64_t g, int64_t most_blocks) : kv_head(g) {
  const int64_t all = call.q.extent(1);
  first_head = call.options.first_query_head(g, all);
  heads = call.options.first_query_head(g + 1, all) - first_head;
  if (heads == 0) return;
  heads_an_item = std::min(heads, most_blocks);
  blocks_an_item = most_blocks / heads_an_item;
  head_pieces = tiles_of(heads, heads_an_item);
  query_pieces = tiles_of(tiles_of(call.q.extent(0), kQueries), blocks_an_item);
}

int64_t most_items(const HeadPlan* plans, int64_t count) {
  int64_t most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, plans[i].items());
  return most;
}

namespace {

bool find_seen(const Call& call, int64_t qt, Seen* seen) {
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

}  // namespace

Item::Item(const Call& call, const HeadPlan& plan, int64_t item, bool all) {
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

void Item::add(const Call& call, int64_t qt, int64_t h, const Seen* seen) {
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

}  // namespace odyssey::amx
