// SPDX-License-Identifier: Apache-2.0
#include "odyssey/plan/counts.h"

#include <algorithm>

#include "odyssey/schedule/step.h"

namespace odyssey {
namespace {

// Every transfer counted in 4-byte elements, so that bytes / 4 are elements whatever the type.
constexpr int64_t kElementBytes = 4;

AttentionLayout layout_of(const RunConfig& run, int64_t rows) {
  const ParallelConfig& p = run.parallel;
  return {Placement(p.placement, run.data.sequence_length, p.ring_size, p.ulysses_size),
          HeadMap(run.model.query_heads, run.model.kv_heads, p.ulysses_size),
          p.outer_gather,
          rows,
          run.model.head_size,
          kElementBytes,
          run.model.mask,
          run.model.window,
          {}};
}

void take_most(int64_t& most, int64_t value) {
  most = std::max(most, value);
}

// The ranks whose transfers differ: the first hold most rows and the most heads, the last have
// other neighbours.
void add_transfers(const AttentionLayout& layout, int r, int u, TransferCounts& counts) {
  TransferCounts mine;
  for (const Step& step : forward_schedule(layout, r, u)) {
    const int64_t elements = step.bytes_sent / kElementBytes;
    if (step.kind == StepKind::kExchangeIn) mine.exchange_in += elements;
    if (step.kind == StepKind::kExchangeOut) mine.exchange_out += elements;
    if (step.kind == StepKind::kGather) mine.gather += elements;
    if (step.kind == StepKind::kShift) {
      take_most(mine.hop, elements);
      ++mine.hops;
    }
  }
  for (const Step& step : backward_schedule(layout, r, u)) {
    const int64_t elements = step.bytes_sent / kElementBytes;
    if (step.kind == StepKind::kExchangeIn) mine.exchange_gradient_in += elements;
    if (step.kind == StepKind::kExchangeOut) mine.exchange_gradient_out += elements;
    if (step.kind == StepKind::kShiftGradient && layout.outer_gather) mine.reduce += elements;
    if (step.kind == StepKind::kShiftGradient && !layout.outer_gather) {
      take_most(mine.gradient_hop, elements);
      ++mine.gradient_hops;
    }
  }
  take_most(counts.exchange_in, mine.exchange_in);
  take_most(counts.exchange_out, mine.exchange_out);
  take_most(counts.exchange_gradient_in, mine.exchange_gradient_in);
  take_most(counts.exchange_gradient_out, mine.exchange_gradient_out);
  take_most(counts.hop, mine.hop);
  take_most(counts.hops, mine.hops);
  take_most(counts.gradient_hop, mine.gradient_hop);
  take_most(counts.gradient_hops, mine.gradient_hops);
  take_most(counts.gather, mine.gather);
  take_most(counts.reduce, mine.reduce);
}

TileCounts count_tiles(const AttentionLayout& layout, TileSize tile) {
  return layout.outer_gather || layout.ring_size() == 1
             ? count_gathered_tiles(layout.placement, layout.kind, layout.window, tile)
             : count_ring_tiles(layout.placement, layout.kind, layout.window, tile);
}

}  // namespace

Counts count(const PlanConfig& config) {
  const RunConfig& run = config.run;
  const ParallelConfig& parallel = run.parallel;
  Counts counts;
  counts.ranks = parallel.ranks();
  counts.sharing_ranks = counts.ranks / parallel.data;
  counts.rows = run.data.global_batch_rows / (parallel.data * parallel.fsdp);
  const AttentionLayout layout = layout_of(run, counts.rows);
  counts.forward = count_tiles(layout, {config.kernel.block_q, config.kernel.block_kv});
  counts.backward =
      count_tiles(layout, {config.kernel.backward_block_q, config.kernel.backward_block_kv});
  counts.head_rows = layout.heads.query_count(0) * counts.rows;
  for (int u = 0; u < parallel.ulysses_size; ++u) {
    take_most(counts.kv_heads, layout.heads.kv_count(u));
  }
  counts.ring_block_tokens = layout.placement.most_ring_block_rows();
  counts.rank_tokens = layout.placement.most_local_rows() * counts.rows;
  for (int r = 0; r < parallel.ring_size; ++r) {
    const int64_t pairs = visible_pairs(layout.placement, layout.kind, layout.window, r);
    take_most(counts.most_pairs, pairs);
    counts.total_pairs += pairs;
  }
  // The systems that are priced pass whole blocks to everybody, whatever the mask.
  AttentionLayout everything = layout;
  everything.kind = MaskKind::kFull;
  const int last_r = parallel.ring_size - 1, last_u = parallel.ulysses_size - 1;
  add_transfers(everything, 0, 0, counts.transfers);
  if (last_r + last_u > 0) add_transfers(everything, last_r, last_u, counts.transfers);
  counts.parameters = parameter_count(run.model);
  return counts;
}

}  // namespace odyssey
