// SPDX-License-Identifier: Apache-2.0
#include "odyssey/plan/counts.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "odyssey/base/error.h"
#include "odyssey/schedule/run_layout.h"

namespace odyssey {
namespace {

// Every transfer counted in 4-byte elements, so that bytes / 4 are elements whatever the type.
constexpr int64_t kElementBytes = 4;

AttentionLayout layout_of(const RunConfig& run, const MaskRule& mask, int64_t rows) {
  AttentionLayout layout = with_mask(run_layout(run, rows), mask);
  layout.element_bytes = kElementBytes;
  return layout;
}

void take_most(int64_t& most, int64_t value) {
  most = std::max(most, value);
}

void add_schedules(const AttentionLayout& layout, int r, int u, TransferCounts& counts) {
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

// What the lists of the trainer send. Up to kAllRanks ring ranks all are looked at; of longer rings
// those whose neighbours differ, at the ends and in the middle.
TransferCounts scheduled_transfers(const AttentionLayout& layout) {
  constexpr int kAllRanks = 64;
  const int ring = layout.ring_size();
  std::vector<int> ranks(std::min(ring, kAllRanks));
  std::iota(ranks.begin(), ranks.end(), 0);
  if (ring > kAllRanks) ranks = {0, 1, ring / 2, ring - 2, ring - 1};
  TransferCounts counts;
  for (const int r : ranks) {
    add_schedules(layout, r, 0, counts);
    if (layout.ulysses_size() > 1) add_schedules(layout, r, layout.ulysses_size() - 1, counts);
  }
  return counts;
}

// Elements of the head exchanges of ring rank r, Ulysses rank u.
void add_exchanges(const AttentionLayout& layout, int r, int u, TransferCounts& counts) {
  const HeadMap& heads = layout.heads;
  const auto numbers = [&](int rank) {
    return layout.batch * layout.placement.local_count(r, rank) * layout.head_size;
  };
  int64_t queries = 0, kv = 0, rows = 0;  // heads and rows of all others
  for (int other = 0; other < layout.ulysses_size(); ++other) {
    if (other == u) continue;
    queries += heads.query_count(other);
    kv += 2 * heads.kv_count(other);
    rows += numbers(other);
  }
  take_most(counts.exchange_in, numbers(u) * (queries + kv));
  take_most(counts.exchange_out, rows * heads.query_count(u));
  take_most(counts.exchange_gradient_in, numbers(u) * queries);
  take_most(counts.exchange_gradient_out, rows * (heads.query_count(u) + 2 * heads.kv_count(u)));
}

// The same by formula, where every block goes everywhere.
TransferCounts full_transfers(const AttentionLayout& layout) {
  const int ring = layout.ring_size();
  TransferCounts counts;
  // Ranks of a part with one more row stand first, and so do those with one more head.
  for (const int r : {0, ring - 1}) {
    for (int u = 0; u < layout.ulysses_size(); ++u) add_exchanges(layout, r, u, counts);
  }
  if (ring == 1) return counts;
  for (int u = 0; u < layout.ulysses_size(); ++u) {
    int64_t all = 0, most = 0, least = INT64_MAX;  // K and V of a block
    for (int block = 0; block < ring; ++block) {
      const int64_t elements =
          2 * layout.placement.ring_block_rows(block) * layout.row_elements(u) / 2;
      all += elements;
      most = std::max(most, elements);
      least = std::min(least, elements);
    }
    if (layout.outer_gather) {
      take_most(counts.gather, all - least);  // all blocks but the next rank's pass on
      take_most(counts.reduce, all - least);  // those of all others go home
    } else {
      take_most(counts.hop, most);
      take_most(counts.gradient_hop, most);
    }
  }
  if (!layout.outer_gather) {
    counts.hops = ring - 1;
    counts.gradient_hops = ring;  // once more, home
  }
  return counts;
}

TileCounts count_tiles(const AttentionLayout& layout, TileSize tile) {
  return layout.outer_gather || layout.ring_size() == 1
             ? count_gathered_tiles(layout.placement, layout.kind, layout.window, tile)
             : count_ring_tiles(layout.placement, layout.kind, layout.window, tile);
}

RingCounts count_ring_of(const PlanConfig& config, const MaskRule& mask) {
  const KernelConfig& kernel = config.kernel;
  const AttentionLayout layout = layout_of(config.run, mask, 1);
  const TileSize forward = {kernel.block_q, kernel.block_kv};
  const TileSize backward = {kernel.backward_block_q, kernel.backward_block_kv};
  RingCounts counts;
  counts.forward = count_tiles(layout, forward);
  const bool same = forward.queries == backward.queries && forward.keys == backward.keys;
  counts.backward = same ? counts.forward : count_tiles(layout, backward);
  for (int r = 0; r < layout.ring_size(); ++r) {
    const int64_t pairs = visible_pairs(layout.placement, layout.kind, layout.window, r);
    take_most(counts.most_pairs, pairs);
    counts.total_pairs += pairs;
  }
  return counts;
}

}  // namespace

std::vector<RingCounts> count_ring(const PlanConfig& config) {
  std::vector<RingCounts> counts;
  for (const MaskShare& share : mask_shares(config.run.model)) {
    counts.push_back(count_ring_of(config, share.mask));
  }
  return counts;
}

Counts count(const Job& job, const std::vector<RingCounts>& ring) {
  const RunConfig& run = job.config.run;
  const ParallelConfig& parallel = run.parallel;
  Counts counts;
  counts.ranks = parallel.ranks();
  counts.sharing_ranks = counts.ranks / parallel.data;
  counts.rows = run.data.global_batch_rows / (parallel.data * parallel.fsdp);
  const std::vector<MaskShare> shares = mask_shares(run.model);
  ODYSSEY_CHECK(ring.size() == shares.size(), "{} counts for {} masks", ring.size(), shares.size());
  const AttentionLayout layout = layout_of(run, shares[0].mask, counts.rows);
  counts.head_rows = layout.heads.query_count(0) * counts.rows;
  for (int u = 0; u < parallel.ulysses_size; ++u) {
    take_most(counts.kv_heads, layout.heads.kv_count(u));
  }
  counts.ring_block_tokens = layout.placement.most_ring_block_rows();
  counts.rank_tokens = layout.placement.most_local_rows() * counts.rows;
  for (size_t i = 0; i < shares.size(); ++i) {
    const AttentionLayout masked = with_mask(layout, shares[i].mask);
    counts.masks.push_back({ring[i], shares[i],
                            job.calibration.trims_hidden_blocks ? scheduled_transfers(masked)
                                                                : full_transfers(masked)});
  }
  counts.parameters = parameter_count(run.model);
  return counts;
}

Counts count(const Job& job) {
  return count(job, count_ring(job.config));
}

}  // namespace odyssey
