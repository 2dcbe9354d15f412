// SPDX-License-Identifier: Apache-2.0
// Counts against plain enumeration, against the schedules of the trainer, and against formulas.
#include "odyssey/plan/tile_count.h"

#include <algorithm>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "odyssey/base/random.h"
#include "odyssey/schedule/step.h"

namespace odyssey {
namespace {

constexpr PlacementKind kPlacements[] = {PlacementKind::kContiguous, PlacementKind::kDualChunkSwap,
                                         PlacementKind::kStriped};
constexpr MaskKind kMasks[] = {MaskKind::kCausal, MaskKind::kFull, MaskKind::kLocalSliding,
                               MaskKind::kChunk};

// Bounds of each tile of some rows, one row at a time.
std::vector<Bounds> tiles_of(const std::vector<Run>& runs, int64_t size) {
  std::vector<Bounds> tiles;
  const int64_t rows = count_rows(runs);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t position = position_of(runs, row);
    if (row % size == 0) tiles.push_back({position, position});
    tiles.back().least = std::min(tiles.back().least, position);
    tiles.back().most = std::max(tiles.back().most, position);
  }
  return tiles;
}

int64_t active_tiles(const std::vector<Run>& queries, const std::vector<Run>& keys, TileSize tile,
                     MaskKind kind, int64_t window) {
  int64_t active = 0;
  for (const Bounds& q : tiles_of(queries, tile.queries)) {
    for (const Bounds& k : tiles_of(keys, tile.keys)) {
      active += classify(kind, window, q, k) != Visibility::kHidden;
    }
  }
  return active;
}

TileCounts ring_by_enumeration(const Placement& placement, MaskKind kind, int64_t window,
                               TileSize tile) {
  const int ring = placement.ring_size();
  TileCounts counts;
  counts.most.assign(ring, 0);
  for (int r = 0; r < ring; ++r) {
    int64_t of_rank = 0;
    for (int step = 0; step < ring; ++step) {
      const int64_t active =
          active_tiles(placement.ring_block(r), placement.ring_block((r - step + ring) % ring),
                       tile, kind, window);
      counts.most[step] = std::max(counts.most[step], active);
      of_rank += active;
    }
    counts.most_of_rank = std::max(counts.most_of_rank, of_rank);
    counts.total += of_rank;
  }
  return counts;
}

TEST(TileCount, EqualsEnumerationForAnyLayoutMaskAndTile) {
  for (uint64_t trial = 0; trial < 400; ++trial) {
    const Random random(7, trial);
    auto draw = [&, index = uint64_t{0}](int64_t least, int64_t most) mutable {
      return least +
             static_cast<int64_t>(random.integer(index++, static_cast<uint64_t>(most - least + 1)));
    };
    const PlacementKind placement_kind = kPlacements[draw(0, 2)];
    const MaskKind mask = kMasks[draw(0, 3)];
    const int64_t length = draw(0, 90), window = draw(1, 40);
    const int ring = static_cast<int>(draw(1, 9));
    const Placement placement(placement_kind, length, ring, 1);
    const TileCounts counts = count_ring_tiles(placement, mask, window, {draw(1, 14), draw(1, 14)});
    const TileCounts slow = ring_by_enumeration(placement, mask, window, counts.tile);
    const std::string what =
        fmt::format("{} {} S={} R={} window={} tile={}x{}", name_of(placement_kind), name_of(mask),
                    length, ring, window, counts.tile.queries, counts.tile.keys);
    EXPECT_EQ(counts.most, slow.most) << what;
    EXPECT_EQ(counts.most_of_rank, slow.most_of_rank) << what;
    EXPECT_EQ(counts.total, slow.total) << what;

    const TileCounts gathered =
        count_gathered_tiles(placement, mask, window, {draw(1, 14), draw(1, 14)});
    int64_t most = 0, total = 0;
    for (int r = 0; r < ring; ++r) {
      const int64_t active = length == 0 ? 0
                                         : active_tiles(placement.ring_block(r), {{0, length, 1}},
                                                        gathered.tile, mask, window);
      most = std::max(most, active);
      total += active;
    }
    EXPECT_EQ(gathered.most_of_rank, most) << what;
    EXPECT_EQ(gathered.total, total) << what;
  }
}

// A tile of one query and one key is a visible pair: what the trainer's own lists count.
TEST(TileCount, TilesOfOnePairAreThePairsOfTheSchedule) {
  for (const PlacementKind kind : kPlacements) {
    for (const MaskKind mask : kMasks) {
      for (const int ring : {1, 2, 3, 5}) {
        const int64_t length = 53, window = 9;
        const Placement placement(kind, length, ring, 1);
        const AttentionLayout layout{placement, HeadMap(1, 1, 1), false, 1, 1, 4, mask, window};
        const TileCounts counts = count_ring_tiles(placement, mask, window, {1, 1});
        std::vector<int64_t> most(ring, 0);
        int64_t total = 0;
        for (int r = 0; r < ring; ++r) {
          int64_t of_rank = 0;
          for (const Step& step : forward_schedule(layout, r, 0)) {
            if (step.kind != StepKind::kAttend) continue;
            int64_t& slot = most[(r - step.block + ring) % ring];
            slot = std::max(slot, step.pairs);
            of_rank += step.pairs;
          }
          EXPECT_EQ(visible_pairs(placement, mask, window, r), of_rank)
              << name_of(kind) << " " << name_of(mask) << " " << ring << " " << r;
          total += of_rank;
        }
        EXPECT_EQ(counts.most, most) << name_of(kind) << " " << name_of(mask) << " " << ring;
        EXPECT_EQ(counts.total, total);
      }
    }
  }
}

double critical_share(const TileCounts& counts, int64_t ring) {
  return static_cast<double>(counts.sum_of_most()) / static_cast<double>(ring * counts.grid());
}

TEST(TileCount, FollowsTheKnownFormulas) {
  for (const int ring : {2, 8, 64}) {
    const int64_t n = 4;  // tiles of a shard
    const int64_t length = ring * n * 512;
    const Placement contiguous(PlacementKind::kContiguous, length, ring, 1);
    const TileCounts counts = count_ring_tiles(contiguous, MaskKind::kCausal, 0, {512, 512});
    // The last rank works on every block in full, but half of its own.
    EXPECT_EQ(counts.sum_of_most(), (ring - 1) * n * n + n * (n + 1) / 2);
    // With tiles of one token: 1 - 1/(2R), up to the diagonal.
    const Placement small(PlacementKind::kContiguous, ring * 1000, ring, 1);
    EXPECT_NEAR(critical_share(count_ring_tiles(small, MaskKind::kCausal, 0, {1, 1}), ring),
                1 - 1.0 / (2 * ring), 1e-3);
    // Half of all on every rank.
    const Placement dual(PlacementKind::kDualChunkSwap, ring * 1000, ring, 1);
    EXPECT_NEAR(critical_share(count_ring_tiles(dual, MaskKind::kCausal, 0, {1, 1}), ring), 0.5,
                1e-3);
  }
  // Ulysses alone: (n + 1) / (2 n).
  const Placement whole(PlacementKind::kContiguous, 8 * 512, 1, 8);
  const TileCounts counts = count_gathered_tiles(whole, MaskKind::kCausal, 0, {512, 512});
  EXPECT_EQ(counts.sum_of_most(), 8 * 9 / 2);
  EXPECT_EQ(counts.grid(), 64);
}

// A contiguous ring of 8 reaches at most (N/2) / (N - 1/2) = 53.3 % of balanced work.
TEST(TileCount, AContiguousRingOfEightReaches53Percent) {
  const Placement placement(PlacementKind::kContiguous, 8 * 4096, 8, 1);
  const TileCounts counts = count_ring_tiles(placement, MaskKind::kCausal, 0, {1, 1});
  const double balanced = static_cast<double>(counts.total) / 8;
  EXPECT_NEAR(balanced / static_cast<double>(counts.sum_of_most()), 0.533, 0.001);
}

// A chunk shorter than a tile: the tile holds the begin and the end of the sequence, so its bounds
// hide nothing, and balance gains nothing.
TEST(TileCount, TilesOverTwoChunksAreNeverHidden) {
  const Placement placement(PlacementKind::kDualChunkSwap, 16 * 512, 16, 1);
  const TileCounts counts = count_ring_tiles(placement, MaskKind::kCausal, 0, {512, 512});
  EXPECT_EQ(counts.total, 16 * 16);
}

TEST(TileCount, LargeMachinesAreCountedWhole) {
  const int ring = 4096;
  const int64_t length = 1 << 20, tile = 64, n = length / ring / tile;
  for (const PlacementKind kind : kPlacements) {
    const TileCounts counts =
        count_ring_tiles(Placement(kind, length, ring, 1), MaskKind::kCausal, 0, {tile, tile});
    ASSERT_EQ(counts.most.size(), static_cast<size_t>(ring));
    const int64_t all = length / tile;
    // A striped rank's rows reach over the whole sequence: tile j of any block is active for j <=
    // i.
    EXPECT_EQ(counts.total, kind == PlacementKind::kStriped ? int64_t{ring} * ring * n * (n + 1) / 2
                                                            : all * (all + 1) / 2);
  }
}

TEST(TileCount, SinglePairsAddUpToTheWhole) {
  constexpr int64_t kLength = 301, kWindow = 40;
  for (const PlacementKind kind : kPlacements) {
    for (const MaskKind mask : kMasks) {
      const Placement placement(kind, kLength, 5, 1);
      const TileCounts ring = count_ring_tiles(placement, mask, kWindow, {7, 9});
      const TileCounts gathered = count_gathered_tiles(placement, mask, kWindow, {7, 9});
      int64_t of_pairs = 0, of_ranks = 0;
      for (int r = 0; r < 5; ++r) {
        for (int block = 0; block < 5; ++block) {
          of_pairs += count_pair_tiles(placement, mask, kWindow, ring.tile, r, block);
        }
        of_ranks += count_pair_tiles(placement, mask, kWindow, gathered.tile, r, kAllKeys);
      }
      EXPECT_EQ(of_pairs, ring.total) << name_of(kind);
      EXPECT_EQ(of_ranks, gathered.total) << name_of(kind);
    }
  }
}

}  // namespace
}  // namespace odyssey
