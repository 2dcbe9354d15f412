// SPDX-License-Identifier: Apache-2.0
// Counts the tiles of the attention grids that kernels walk: exactly, by the mask and the
// placement, for every rank and ring step, and fast enough for 4,096 ranks.
//
// The rows of a rank are cut into tiles in storage order. A tile is *active* unless its bounds tell
// that no query in it sees a key in it: the rule by which kernels skip. So a tile that holds the
// end of one chunk and the begin of another counts as its bounds say, as it does on the machine.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "odyssey/sequence/block_mask.h"
#include "odyssey/sequence/placement.h"

namespace odyssey {

struct TileSize {
  int64_t queries = 512, keys = 512;
};

// Of one query head and one batch row.
struct TileCounts {
  TileSize tile;              // cut to the rows that are there
  int64_t query_tiles = 0;    // of the largest rank
  int64_t key_tiles = 0;      // of the largest block: of one step
  std::vector<int64_t> most;  // [steps] active tiles of the rank that has most in that step
  int64_t most_of_rank = 0;   // active tiles of all steps of the rank that has most
  int64_t total = 0;          // of all ranks and steps
  int64_t grid() const { return query_tiles * key_tiles; }  // of one step
  // What ranks wait for where every step ends for all together.
  int64_t sum_of_most() const;
};

// Ring: step t of ring rank r attends to block (r - t) mod R, one block a step.
TileCounts count_ring_tiles(const Placement& placement, MaskKind kind, int64_t window,
                            TileSize tile);

// Gather, or no ring: one step over all keys, which lie in natural order.
TileCounts count_gathered_tiles(const Placement& placement, MaskKind kind, int64_t window,
                                TileSize tile);

// Active tiles of ring rank r on the keys of `block`, or on all keys in natural order where block
// is kAllKeys. `tile` is that of the two functions above: already cut. One pair, for drawing.
constexpr int kAllKeys = -1;
int64_t count_pair_tiles(const Placement& placement, MaskKind kind, int64_t window, TileSize tile,
                         int r, int block);

// Visible (query, key) pairs of ring rank r, over all keys; in closed form.
int64_t visible_pairs(const Placement& placement, MaskKind kind, int64_t window, int r);

}  // namespace odyssey
