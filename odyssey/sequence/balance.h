// SPDX-License-Identifier: Apache-2.0
// How evenly a placement shares the work of attention: visible (query, key) pairs of every ring
// rank at every hop, and what the busiest one does beside the mean. Counts, so the same on every
// machine; documents are counted as the mask sees them.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "odyssey/sequence/placement.h"

namespace odyssey {

// At hop t ring rank r attends to block (r - t) mod R.
struct RingWork {
  int ring_size = 1;
  std::vector<int64_t> pairs;  // [R, R]: of rank r at hop t, over all rows of the batch

  int64_t at(int rank, int hop) const { return pairs[int64_t{rank} * ring_size + hop]; }
  int64_t of_rank(int rank) const;
  int64_t all() const;
  // Blocks other than the own that some query of a rank sees, over all ranks: a placement that
  // needs few can leave out transfers.
  int64_t foreign_blocks() const;
  // Of each hop the busiest rank, added up.
  int64_t busiest_by_hop() const;
  // The busiest rank over the mean: 1 is perfect, R means that one rank does it all. 1 for no work.
  double imbalance() const;
  // The same where ranks wait for each other after every hop, as in a ring whose transfers are
  // short: the busiest rank of each hop, added up, over the mean work of a rank.
  double step_imbalance() const;
};

// The work of all layers of a model, whose masks may differ.
struct LayeredWork {
  std::vector<RingWork> works;  // of one layer of each mask
  std::vector<int64_t> layers;  // of that mask
  // As those of one call: layers run one after the other, so their work adds up rank by rank, and
  // where ranks wait for each other after every hop, hop by hop.
  double imbalance() const;
  double step_imbalance() const;
  int64_t foreign_blocks() const;
};

// rows: one placement for each row of the batch, of equal length S and ring size. segments [B, S]
// in natural order; empty: one document a row, no padding. Takes time of order B R S.
RingWork count_ring_work(std::span<const Placement> rows, std::span<const int32_t> segments,
                         MaskKind kind, int64_t window);
LayeredWork count_layered_work(std::span<const Placement> rows, std::span<const int32_t> segments,
                               std::span<const MaskShare> masks);

// The placement that costs least for rows of one document and layers of these masks: among those
// whose step_imbalance is within 2 % of the least, the one that needs the fewest foreign blocks;
// where that is equal too, the one of fewest runs (contiguous, dual_chunk_swap, striped). Counted
// on a shorter row in the same proportions, of at most 64 ranks, so it takes no time whatever S. S
// = 0, not known yet: dual_chunk_swap.
PlacementKind cheapest_placement(int64_t sequence_length, int ring_size,
                                 std::span<const MaskShare> masks);

}  // namespace odyssey
