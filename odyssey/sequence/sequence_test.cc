// SPDX-License-Identifier: Apache-2.0
#include <numeric>
#include <tuple>

#include <gtest/gtest.h>

#include "odyssey/base/random.h"
#include "odyssey/sequence/block_mask.h"
#include "odyssey/sequence/needed_rows.h"
#include "odyssey/sequence/placement.h"
#include "odyssey/sequence/shard.h"

namespace odyssey {
namespace {

std::vector<int64_t> positions(const std::vector<Run>& runs) {
  std::vector<int64_t> all;
  for (const Run& run : runs) {
    for (int64_t i = 0; i < run.count; ++i) all.push_back(run.first + i * run.stride);
  }
  return all;
}

constexpr PlacementKind kPlacements[] = {PlacementKind::kContiguous, PlacementKind::kDualChunkSwap,
                                         PlacementKind::kStriped};

TEST(Placement, DualChunkSwapMatchesMaxText) {
  // S=16 over 4 ranks, the example of MaxText's documentation.
  const Placement placement(PlacementKind::kDualChunkSwap, 16, 4, 1);
  EXPECT_EQ(positions(placement.ring_block(0)), (std::vector<int64_t>{0, 1, 14, 15}));
  EXPECT_EQ(positions(placement.ring_block(1)), (std::vector<int64_t>{2, 3, 12, 13}));
  EXPECT_EQ(positions(placement.ring_block(3)), (std::vector<int64_t>{6, 7, 8, 9}));
}

TEST(Placement, UlyssesRanksCutTheRingBlockInStorageOrder) {
  // R=2, U=2, S=16: only the ring size enters the reordering.
  const Placement placement(PlacementKind::kDualChunkSwap, 16, 2, 2);
  EXPECT_EQ(positions(placement.local_rows(0, 0)), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(positions(placement.local_rows(0, 1)), (std::vector<int64_t>{12, 13, 14, 15}));
  EXPECT_EQ(positions(placement.local_rows(1, 0)), (std::vector<int64_t>{4, 5, 6, 7}));
  EXPECT_EQ(positions(placement.local_rows(1, 1)), (std::vector<int64_t>{8, 9, 10, 11}));
}

TEST(Placement, EveryGlobalTokenLandsOnExactlyOneRank) {
  for (PlacementKind kind : kPlacements) {
    for (int64_t length : {0, 1, 2, 5, 7, 16, 30, 61, 127}) {
      for (int ring : {1, 2, 3, 4, 5, 8}) {
        for (int ulysses : {1, 2, 3, 4}) {
          const Placement placement(kind, length, ring, ulysses);
          std::vector<int> seen(length);
          for (int r = 0; r < ring; ++r) {
            std::vector<int64_t> joined;
            for (int u = 0; u < ulysses; ++u) {
              const auto rows = positions(placement.local_rows(r, u));
              ASSERT_EQ(static_cast<int64_t>(rows.size()), placement.local_count(r, u));
              ASSERT_LE(placement.local_count(r, u), placement.most_local_rows());
              joined.insert(joined.end(), rows.begin(), rows.end());
            }
            ASSERT_EQ(joined, positions(placement.ring_block(r)));
            ASSERT_LE(placement.ring_block_rows(r), placement.most_ring_block_rows());
            for (int64_t position : joined) ++seen[position];
          }
          for (int64_t i = 0; i < length; ++i) ASSERT_EQ(seen[i], 1) << i;
        }
      }
    }
  }
}

TEST(Placement, PartsDifferByAtMostOneToken) {
  for (PlacementKind kind : {PlacementKind::kContiguous, PlacementKind::kStriped}) {
    const Placement placement(kind, 2999, 4, 3);
    for (int r = 0; r < 4; ++r) {
      for (int u = 0; u < 3; ++u)
        EXPECT_NEAR(static_cast<double>(placement.local_count(r, u)), 250, 1);
    }
  }
}

TEST(Shard, TakesRowsInStorageOrder) {
  std::vector<int32_t> row(16), out(4);
  std::iota(row.begin(), row.end(), 100);
  take_rows(Placement(PlacementKind::kDualChunkSwap, 16, 4, 1).ring_block(1), row, out);
  EXPECT_EQ(out, (std::vector<int32_t>{102, 103, 112, 113}));
}

// The rule written a second time, pair by pair.
bool sees(MaskKind kind, int64_t window, int64_t query, int64_t key) {
  switch (kind) {
    case MaskKind::kFull:
      return true;
    case MaskKind::kCausal:
      return key <= query;
    case MaskKind::kLocalSliding:
      return key <= query && query - key < window;
    case MaskKind::kChunk:
      return key <= query && query / window == key / window;
  }
  return false;
}

struct RandomBlock {
  std::vector<Run> runs;
  std::vector<int32_t> segments;
};

// Rows of a random ring block, with random documents of the whole row.
RandomBlock random_block(const Placement& placement, int r, const std::vector<int32_t>& row) {
  RandomBlock block{placement.ring_block(r), {}};
  block.segments.resize(count_rows(block.runs));
  take_rows(block.runs, row, block.segments);
  return block;
}

TEST(BlockMask, CountsAndClassesAgreeWithSinglePairs) {
  const Random random(11, 0);
  uint64_t draw = 0;
  const auto next = [&](uint64_t bound) {
    return static_cast<int64_t>(random.integer(draw++, bound));
  };
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    const int64_t length = 1 + next(60);
    const int ring = static_cast<int>(1 + next(5));
    const Placement placement(kPlacements[next(3)], length, ring, 1);
    std::vector<int32_t> row(length);
    int32_t document = 1;
    for (int32_t& segment : row) {
      if (next(8) == 0) ++document;
      segment = next(10) == 0 ? 0 : document;
    }
    const auto queries = random_block(placement, static_cast<int>(next(ring)), row);
    const auto keys = random_block(placement, static_cast<int>(next(ring)), row);
    const auto kind = static_cast<MaskKind>(next(4));
    const int64_t window = 1 + next(20);
    const bool packed = next(2) == 0;
    BlockMask mask{{queries.runs, {}}, {keys.runs, {}}, kind, window};
    if (packed) {
      mask.queries.segments = queries.segments;
      mask.keys.segments = keys.segments;
    }
    int64_t pairs = 0, total = 0;
    const auto q = positions(queries.runs), k = positions(keys.runs);
    Bounds query{1 << 30, -1}, key{1 << 30, -1};
    int64_t unpacked = 0;
    for (size_t i = 0; i < q.size(); ++i) {
      query = {std::min(query.least, q[i]), std::max(query.most, q[i])};
      for (size_t j = 0; j < k.size(); ++j) {
        key = {std::min(key.least, k[j]), std::max(key.most, k[j])};
        const bool seen = sees(kind, window, q[i], k[j]);
        ASSERT_EQ(visible(kind, window, q[i], k[j]), seen);
        const bool same =
            !packed || (queries.segments[i] == keys.segments[j] && queries.segments[i] != 0);
        pairs += seen && same;
        unpacked += seen;
        ++total;
      }
    }
    EXPECT_EQ(count_visible_pairs(mask), pairs);
    if (total == 0) continue;
    const Visibility visibility = classify(kind, window, query, key);
    if (visibility == Visibility::kHidden) {
      EXPECT_EQ(unpacked, 0);
    }
    if (visibility == Visibility::kFull) {
      EXPECT_EQ(unpacked, total);
    }
  }
}

TEST(BlockMask, SegmentBounds) {
  EXPECT_EQ(classify_segments({1, 1}, {1, 1}), Visibility::kFull);
  EXPECT_EQ(classify_segments({1, 2}, {2, 2}), Visibility::kPartial);
  EXPECT_EQ(classify_segments({0, 1}, {1, 1}), Visibility::kPartial);
  EXPECT_EQ(classify_segments({0, 0}, {0, 0}), Visibility::kHidden);
  EXPECT_EQ(classify_segments({1, 2}, {3, 4}), Visibility::kHidden);
}

TEST(BlockMask, PositionOfWalksTheRuns) {
  const std::vector<odyssey::Run> runs{{3, 2, 1}, {10, 3, 4}};
  EXPECT_EQ(position_of(runs, 1), 4);
  EXPECT_EQ(position_of(runs, 4), 18);
  EXPECT_THROW(position_of(runs, 5), std::logic_error);
}

// Random runs of both sides, half of the times with documents; the rows are found pair by pair.
TEST(NeededRows, AreThoseThatSomeQuerySees) {
  const Random random(7, 1);
  uint64_t next = 0;
  const auto draw = [&](int64_t most) {
    return static_cast<int64_t>(random.integer(next++, static_cast<uint64_t>(most)));
  };
  for (int trial = 0; trial < 3000; ++trial) {
    const auto runs = [&] {
      std::vector<odyssey::Run> some;
      int64_t first = draw(20);
      for (int64_t i = draw(3); i >= 0; --i) {
        some.push_back({first, draw(9), 1 + draw(4)});
        first += some.back().count * some.back().stride + draw(10);
      }
      return some;
    };
    const std::vector<odyssey::Run> queries = runs(), keys = runs();
    const MaskKind kind = std::array{MaskKind::kCausal, MaskKind::kFull, MaskKind::kLocalSliding,
                                     MaskKind::kChunk}[static_cast<size_t>(draw(4))];
    const int64_t window = 1 + draw(12);
    std::vector<int32_t> ids(200, 1);
    if (draw(2) == 0) {
      for (size_t i = 0; i < ids.size(); ++i) {
        ids[i] = i > 0 && draw(6) > 0 ? ids[i - 1] : static_cast<int32_t>(draw(5));
      }
    }
    const std::vector<Document> documents = documents_of(ids);
    const std::vector<SegmentRun> query_runs = segment_runs(queries, documents),
                                  key_runs = segment_runs(keys, documents);
    const std::vector<RowRange> needed = needed_rows(query_runs, key_runs, kind, window);
    std::vector<int64_t> expected, got;
    int64_t pairs = 0;
    for (int64_t k = 0; k < count_rows(keys); ++k) {
      const int64_t key = position_of(keys, k), earlier = pairs;
      for (int64_t q = 0; q < count_rows(queries); ++q) {
        const int64_t query = position_of(queries, q);
        pairs += ids[query] == ids[key] && ids[key] != 0 && visible(kind, window, query, key);
      }
      if (pairs > earlier) expected.push_back(key);
    }
    ASSERT_EQ(count_visible_pairs(query_runs, key_runs, kind, window), pairs);
    for (const RowRange& range : needed) {
      ASSERT_GT(range.count, 0);
      for (int64_t i = 0; i < range.count; ++i) got.push_back(position_of(keys, range.begin + i));
    }
    for (size_t i = 1; i < needed.size(); ++i)
      ASSERT_GT(needed[i].begin, needed[i - 1].begin + needed[i - 1].count);
    ASSERT_EQ(got, expected) << name_of(kind) << " window " << window << " trial " << trial;
    ASSERT_EQ(positions(runs_of(keys, needed)), expected);
  }
}

}  // namespace
}  // namespace odyssey
