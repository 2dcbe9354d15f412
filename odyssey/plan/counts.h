// SPDX-License-Identifier: Apache-2.0
// Everything about a layout that can be counted: tiles, pairs, transfers, tokens. No times, no
// machine.
#pragma once
#include <cstdint>
#include <vector>

#include "odyssey/plan/job.h"
#include "odyssey/plan/tile_count.h"

namespace odyssey {

// Elements that one rank sends in one attention call of one layer, most of any rank; times the
// bytes of an element on the wire they are bytes. One hop: to the next ring rank.
struct TransferCounts {
  int64_t exchange_in = 0, exchange_out = 0;                    // forward, Ulysses
  int64_t exchange_gradient_in = 0, exchange_gradient_out = 0;  // backward
  int64_t hop = 0, hops = 0;                                    // K and V of one shift; shifts
  int64_t gradient_hop = 0, gradient_hops = 0;                  // dK and dV
  int64_t gather = 0, reduce = 0;                               // K, V; dK, dV
};

// Of the layers of one mask: what depends on length, mask, kernel blocks, ring size, placement and
// outer exchange only: the slow part, equal for every Ulysses size and batch.
struct RingCounts {
  TileCounts forward, backward;  // one query head, one row
  int64_t most_pairs = 0;        // visible pairs of a head and row of the rank with most
  int64_t total_pairs = 0;       // over all ranks
};

struct MaskCounts : RingCounts {
  MaskShare share;  // the mask, and how many layers have it
  // Where the family trims hidden blocks: what the lists of the trainer here send. Else every block
  // goes all the way round the ring, or to every rank, whatever the mask hides.
  TransferCounts transfers;
};

struct Counts {
  std::vector<MaskCounts> masks;  // as mask_shares of the model
  int64_t head_rows = 0;          // query heads of a Ulysses rank x batch rows: times each tile
  int64_t kv_heads = 0;           // of a Ulysses rank, most of any
  int64_t rows = 0;               // batch rows of a rank's context group
  int64_t ring_block_tokens = 0;  // most of any ring rank
  int64_t rank_tokens = 0;        // tokens of a rank, all rows, most of any
  int64_t parameters = 0;
  int64_t ranks = 0, sharing_ranks = 0;  // all; those that share one copy of the weights
};

// One entry a mask.
std::vector<RingCounts> count_ring(const PlanConfig& config);
// `ring` = count_ring of the same job, or of one that differs only by Ulysses size and batch.
Counts count(const Job& job, const std::vector<RingCounts>& ring);
Counts count(const Job& job);

}  // namespace odyssey
