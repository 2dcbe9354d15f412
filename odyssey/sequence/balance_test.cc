// SPDX-License-Identifier: Apache-2.0
// Placements of random layouts hold every token once; balance is counted right, and is what the
// placements are for.
#include "odyssey/sequence/balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "odyssey/base/random.h"

namespace odyssey {
namespace {

constexpr PlacementKind kPlacements[] = {PlacementKind::kContiguous, PlacementKind::kDualChunkSwap,
                                         PlacementKind::kStriped, PlacementKind::kPerDocument};

// Draws one number after the other.
class Draws {
 public:
  explicit Draws(uint64_t stream) : random_(21, stream) {}
  int64_t between(int64_t least, int64_t most) {
    return least +
           static_cast<int64_t>(random_.integer(next_++, static_cast<uint64_t>(most - least + 1)));
  }
  double normal() { return random_.normal(next_++); }

 private:
  Random random_;
  uint64_t next_ = 0;
};

std::vector<int64_t> positions(const std::vector<Run>& runs) {
  std::vector<int64_t> all;
  for (const Run& run : runs) {
    for (int64_t i = 0; i < run.count; ++i) all.push_back(run.first + i * run.stride);
  }
  return all;
}

// Documents of a row: now and then long, often of a single token; padding (id 0) between or behind.
std::vector<int32_t> random_segments(Draws& draws, int64_t length) {
  std::vector<int32_t> segments;
  int32_t id = 0;
  while (static_cast<int64_t>(segments.size()) < length) {
    const int64_t longest = draws.between(0, 2) == 0 ? length : std::min<int64_t>(length, 9);
    const int64_t size = draws.between(1, longest);
    segments.insert(segments.end(), size, draws.between(0, 7) == 0 ? 0 : ++id);
  }
  segments.resize(length);
  return segments;
}

// Documents of a log-normal distribution of lengths, all of at least one token.
std::vector<int32_t> mixed_documents(Draws& draws, int documents, int64_t length) {
  std::vector<double> ends(1, 0);
  for (int d = 0; d < documents; ++d) ends.push_back(ends.back() + std::exp(draws.normal()));
  std::vector<int32_t> segments;
  int32_t id = 1;
  for (int64_t i = 0; i < length; ++i) {
    const double place = static_cast<double>(i) / static_cast<double>(length) * ends.back();
    while (id < documents && place >= ends[id]) ++id;
    segments.push_back(id);
  }
  return segments;
}

struct RandomLayout {
  Placement placement;
  std::vector<int32_t> segments;
};

// Up to 64 ranks; rows shorter than the ranks, so that some hold nothing; lengths that divide by
// nothing.
RandomLayout random_layout(Draws& draws) {
  const int ring = static_cast<int>(draws.between(1, 64));
  const int ulysses = static_cast<int>(draws.between(1, 64 / ring));
  const int64_t length = draws.between(0, draws.between(0, 1) == 0 ? 3 * ring : 700);
  const Placement placement(kPlacements[draws.between(0, 3)], length, ring, ulysses);
  const std::vector<int32_t> segments = random_segments(draws, length);
  return {row_placements(placement, 1, segments)[0], segments};
}

TEST(Placement, RandomLayoutsHoldEveryTokenOnceInRunOrder) {
  Draws draws(1);
  int empty_ranks = 0;
  for (int round = 0; round < 600; ++round) {
    const RandomLayout layout = random_layout(draws);
    const Placement& p = layout.placement;
    SCOPED_TRACE(fmt::format("round {}: {} S={} {}x{}", round, name_of(p.kind()),
                             p.sequence_length(), p.ring_size(), p.ulysses_size()));
    std::vector<int> seen(p.sequence_length());
    for (int r = 0; r < p.ring_size(); ++r) {
      std::vector<int64_t> joined;
      for (int u = 0; u < p.ulysses_size(); ++u) {
        const std::vector<int64_t> rows = positions(p.local_rows(r, u));
        ASSERT_EQ(p.local_begin(r, u), static_cast<int64_t>(joined.size()));
        ASSERT_EQ(p.local_count(r, u), static_cast<int64_t>(rows.size()));
        ASSERT_LE(p.local_count(r, u), p.most_local_rows());
        joined.insert(joined.end(), rows.begin(), rows.end());
        empty_ranks += rows.empty();
      }
      const auto block = p.ring_block(r);
      for (const auto& run : block) ASSERT_GE(run.count, 1);
      ASSERT_EQ(joined, positions(block));
      ASSERT_TRUE(std::is_sorted(joined.begin(), joined.end()));
      ASSERT_EQ(p.ring_block_rows(r), static_cast<int64_t>(joined.size()));
      ASSERT_LE(p.ring_block_rows(r), p.most_ring_block_rows());
      for (int64_t position : joined) ++seen[position];
    }
    ASSERT_EQ(std::count(seen.begin(), seen.end(), 1), p.sequence_length());
  }
  EXPECT_GT(empty_ranks, 100);
}

TEST(PerDocument, OnlyTheLengthOfTheRowSaysHowManyTokensARankHolds) {
  Draws draws(2);
  for (int round = 0; round < 300; ++round) {
    const int ring = static_cast<int>(draws.between(1, 64));
    const int64_t length = draws.between(0, 500);
    const Placement placement(PlacementKind::kPerDocument, length, ring, 2);
    const Placement contiguous(PlacementKind::kContiguous, length, ring, 2);
    const Placement packed =
        placement.with_documents(document_lengths(random_segments(draws, length)));
    for (int r = 0; r < ring; ++r) {
      ASSERT_EQ(packed.ring_block_rows(r), contiguous.ring_block_rows(r)) << round << " " << r;
      ASSERT_EQ(placement.ring_block_rows(r), contiguous.ring_block_rows(r)) << round << " " << r;
    }
  }
}

using Lengths = std::vector<int64_t>;

TEST(PerDocument, DealsLongDocumentsToAllRanks) {
  // Documents of 8, 4 and 4 tokens on two ranks: chunks of 2, 1 and 1 tokens; 0 and 3 are rank 0's.
  const Placement placement =
      Placement(PlacementKind::kPerDocument, 16, 2, 1).with_documents(Lengths{8, 4, 4});
  EXPECT_EQ(positions(placement.ring_block(0)), (std::vector<int64_t>{0, 1, 6, 7, 8, 11, 12, 15}));
  EXPECT_EQ(positions(placement.ring_block(1)), (std::vector<int64_t>{2, 3, 4, 5, 9, 10, 13, 14}));
  // One document is dual_chunk_swap.
  const Placement one(PlacementKind::kPerDocument, 16, 4, 1);
  const Placement swap(PlacementKind::kDualChunkSwap, 16, 4, 1);
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(positions(one.ring_block(r)), positions(swap.ring_block(r)));
  }
  // Single tokens are dealt in turn.
  const Placement single =
      Placement(PlacementKind::kPerDocument, 5, 2, 1).with_documents(Lengths{1, 1, 1, 1, 1});
  EXPECT_EQ(positions(single.ring_block(0)), (std::vector<int64_t>{0, 2, 4}));
}

TEST(PerDocument, KeepsShortDocumentsWhole) {
  // 2 ranks of 512 tokens: documents of up to 128 stay whole, but the last places must be filled.
  const Lengths lengths = {100, 120, 600, 80, 124};
  const Placement placement =
      Placement(PlacementKind::kPerDocument, 1024, 2, 1).with_documents(lengths);
  const std::vector<int64_t> first = positions(placement.ring_block(0));
  // The long one is halved; the longest short one goes to rank 0, the next two to rank 1.
  EXPECT_EQ(
      std::count_if(first.begin(), first.end(), [](int64_t i) { return i >= 220 && i < 820; }),
      300);
  EXPECT_EQ(first.back(), 1023);
  EXPECT_EQ(first.size(), 512u);
  Draws draws(5);
  for (int round = 0; round < 50; ++round) {
    // 100 documents of at most 128 tokens on 4 ranks of more than 512: nearly all stay whole.
    Lengths documents;
    for (int d = 0; d < 100; ++d) documents.push_back(draws.between(1, 128));
    const int64_t length = std::accumulate(documents.begin(), documents.end(), int64_t{0});
    if (length < 2048) continue;
    const Placement packed =
        Placement(PlacementKind::kPerDocument, length, 4, 1).with_documents(documents);
    std::vector<int> owner(length);
    for (int r = 0; r < 4; ++r) {
      for (int64_t position : positions(packed.ring_block(r))) owner[position] = r;
    }
    int cut = 0;
    int64_t begin = 0;
    for (int64_t tokens : documents) {
      cut += std::any_of(owner.begin() + begin, owner.begin() + begin + tokens,
                         [&](int r) { return r != owner[begin]; });
      begin += tokens;
    }
    ASSERT_LE(cut, 4);
  }
}

TEST(PerDocument, RefusesDocumentsThatAreNotTheRow) {
  const Placement placement(PlacementKind::kPerDocument, 16, 2, 1);
  EXPECT_THROW(placement.with_documents(Lengths{8, 4}), std::logic_error);
  EXPECT_THROW(row_placements(placement, 2, std::vector<int32_t>(16, 1)), std::logic_error);
}

TEST(DocumentLengths, AreTheStretchesOfEqualIds) {
  EXPECT_EQ(document_lengths(std::vector<int32_t>{1, 1, 2, 0, 0, 2, 2, 2}),
            (std::vector<int64_t>{2, 1, 2, 3}));
  EXPECT_TRUE(document_lengths({}).empty());
}

// The rule of the mask, pair by pair.
bool sees(MaskKind kind, int64_t window, int64_t query, int64_t key) {
  if (kind == MaskKind::kFull) return true;
  if (key > query) return false;
  if (kind == MaskKind::kLocalSliding) return query - key < window;
  if (kind == MaskKind::kChunk) return query / window == key / window;
  return true;
}

TEST(Balance, CountsAreThoseOfEnumeration) {
  Draws draws(3);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    const int ring = static_cast<int>(draws.between(1, 9));
    const int64_t length = draws.between(1, 60), batch = draws.between(1, 3);
    const auto kind = static_cast<MaskKind>(draws.between(0, 3));
    const int64_t window = draws.between(1, 20);
    std::vector<int32_t> segments;
    if (draws.between(0, 3) > 0) {
      for (int64_t b = 0; b < batch; ++b) {
        const std::vector<int32_t> row = random_segments(draws, length);
        segments.insert(segments.end(), row.begin(), row.end());
      }
    }
    const Placement placement(kPlacements[draws.between(0, 3)], length, ring, 1);
    const std::vector<Placement> rows = row_placements(placement, batch, segments);
    const RingWork work = count_ring_work(rows, segments, kind, window);

    std::vector<int64_t> expected(ring * ring), of_rank(ring), most_at(ring);
    int64_t all = 0;
    for (int64_t b = 0; b < batch; ++b) {
      std::vector<int> owner(length);
      for (int r = 0; r < ring; ++r) {
        for (int64_t position : positions(rows[b].ring_block(r))) owner[position] = r;
      }
      for (int64_t i = 0; i < length; ++i) {
        for (int64_t j = 0; j < length; ++j) {
          if (!sees(kind, window, i, j)) continue;
          if (!segments.empty()) {
            const int32_t of_query = segments[b * length + i], of_key = segments[b * length + j];
            if (of_query == 0 || of_query != of_key) continue;
          }
          ++expected[owner[i] * ring + (owner[i] - owner[j] + ring) % ring];
          ++of_rank[owner[i]];
          ++all;
        }
      }
    }
    ASSERT_EQ(work.pairs, expected);
    ASSERT_EQ(work.all(), all);
    if (all == 0) {
      ASSERT_EQ(work.imbalance(), 1);
      continue;
    }
    const double mean = static_cast<double>(all) / ring;
    ASSERT_DOUBLE_EQ(work.imbalance(),
                     static_cast<double>(*std::max_element(of_rank.begin(), of_rank.end())) / mean);
    int64_t busiest = 0, foreign = 0;
    for (int hop = 0; hop < ring; ++hop) {
      for (int r = 0; r < ring; ++r) {
        most_at[hop] = std::max(most_at[hop], expected[r * ring + hop]);
        foreign += hop > 0 && expected[r * ring + hop] > 0;
      }
      busiest += most_at[hop];
    }
    ASSERT_DOUBLE_EQ(work.step_imbalance(), static_cast<double>(busiest) / mean);
    ASSERT_EQ(work.foreign_blocks(), foreign);
  }
}

RingWork work_of(PlacementKind kind, int64_t length, int ring,
                 const std::vector<int32_t>& segments = {}, MaskKind mask = MaskKind::kCausal,
                 int64_t window = 0) {
  const std::vector<Placement> rows = row_placements(Placement(kind, length, ring, 1), 1, segments);
  return count_ring_work(rows, segments, mask, window);
}

TEST(Balance, CausalRowsAreSharedEvenlyInAllAndAtEveryHop) {
  for (PlacementKind kind :
       {PlacementKind::kDualChunkSwap, PlacementKind::kStriped, PlacementKind::kPerDocument}) {
    const RingWork work = work_of(kind, 16384, 8);
    EXPECT_LE(work.imbalance(), 1.005) << name_of(kind);
    EXPECT_LE(work.step_imbalance(), 1.005) << name_of(kind);
  }
  // What they are for: the last of 8 contiguous parts does 15/8 of the mean.
  EXPECT_NEAR(work_of(PlacementKind::kContiguous, 16384, 8).imbalance(), 15.0 / 8, 1e-3);
}

// Rows of documents of mixed lengths. The worst of several rows, in all and hop by hop.
std::pair<double, double> worst_of_packed(PlacementKind kind, MaskKind mask, int64_t window,
                                          int documents = 20) {
  Draws draws(4);
  std::pair<double, double> worst(1, 1);
  for (int round = 0; round < 10; ++round) {
    const std::vector<int32_t> segments = mixed_documents(draws, documents, 16384);
    const RingWork work = work_of(kind, 16384, 8, segments, mask, window);
    worst.first = std::max(worst.first, work.imbalance());
    worst.second = std::max(worst.second, work.step_imbalance());
  }
  return worst;
}

TEST(Balance, PackedRowsAreSharedEvenlyPerDocument) {
  for (MaskKind mask : {MaskKind::kCausal, MaskKind::kFull}) {
    for (PlacementKind kind : {PlacementKind::kPerDocument, PlacementKind::kStriped}) {
      const auto [all, by_hop] = worst_of_packed(kind, mask, 0);
      EXPECT_LE(all, 1.05) << name_of(kind) << name_of(mask);
      EXPECT_LE(by_hop, 1.05) << name_of(kind) << name_of(mask);
    }
    // Nearly all of these are short and stay whole.
    const auto [all, by_hop] = worst_of_packed(PlacementKind::kPerDocument, mask, 0, 200);
    EXPECT_LE(all, 1.1);
    EXPECT_LE(by_hop, 1.1);
    // What it is for: dual_chunk_swap of the whole row.
    EXPECT_GT(worst_of_packed(PlacementKind::kDualChunkSwap, mask, 0).first, 1.5);
  }
}

TEST(Balance, PackedRowsUnderAWindowAreSharedEvenlyInStripes) {
  for (MaskKind mask : {MaskKind::kLocalSliding, MaskKind::kChunk}) {
    for (int64_t window : {50, 250, 1000, 4000}) {
      const auto [all, by_hop] = worst_of_packed(PlacementKind::kStriped, mask, window);
      EXPECT_LE(all, 1.03) << name_of(mask) << window;
      EXPECT_LE(by_hop, 1.03) << name_of(mask) << window;
    }
  }
}

PlacementKind cheapest(int64_t length, int ring, MaskKind kind, int64_t window) {
  const MaskShare only[] = {{{kind, window}, 1}};
  return cheapest_placement(length, ring, only);
}

TEST(CheapestPlacement, CountsWorkAndBlocks) {
  using enum PlacementKind;
  for (int ring : {2, 3, 8, 64, 500}) {
    EXPECT_EQ(cheapest(1 << 20, ring, MaskKind::kCausal, 0), kDualChunkSwap) << ring;
  }
  // Under a narrow window contiguous parts are even, and a rank then needs its neighbour only.
  for (int64_t window : {2, 100, 1024}) {
    EXPECT_EQ(cheapest(1 << 20, 8, MaskKind::kLocalSliding, window), kContiguous);
  }
  // A wide one is causal at first, then not: only stripes are even.
  EXPECT_EQ(cheapest(1 << 20, 8, MaskKind::kLocalSliding, 1 << 18), kStriped);
  EXPECT_EQ(cheapest(1 << 20, 8, MaskKind::kLocalSliding, 1 << 20), kDualChunkSwap);
  // Chunks of half a part need no other rank at all; a chunk of the whole row is causal.
  EXPECT_EQ(cheapest(1 << 20, 8, MaskKind::kChunk, 1 << 16), kContiguous);
  EXPECT_EQ(cheapest(1 << 20, 8, MaskKind::kChunk, 1 << 20), kDualChunkSwap);
  EXPECT_EQ(cheapest(1 << 20, 8, MaskKind::kFull, 0), kContiguous);
  // Not known yet, and fewer tokens than ranks.
  EXPECT_EQ(cheapest(0, 8, MaskKind::kLocalSliding, 1024), kDualChunkSwap);
  EXPECT_EQ(cheapest(3, 8, MaskKind::kCausal, 0), kContiguous);
}

TEST(CheapestPlacement, WeighsTheMasksOfAllLayers) {
  using enum PlacementKind;
  const auto mixed = [](int64_t windows, int64_t causal, int64_t window) {
    const MaskShare shares[] = {{{MaskKind::kLocalSliding, window}, windows},
                                {{MaskKind::kCausal, 0}, causal}};
    return cheapest_placement(1 << 20, 8, shares);
  };
  // The causal layers have nearly all the work, however few they are.
  EXPECT_EQ(mixed(1, 1, 4096), kDualChunkSwap);
  EXPECT_EQ(mixed(5, 1, 1024), kDualChunkSwap);
  // Windows over a quarter of the row are no small thing.
  EXPECT_EQ(mixed(100, 1, 1 << 18), kStriped);
}

TEST(Balance, LayersAddUp) {
  const std::vector<Placement> rows = {Placement(PlacementKind::kContiguous, 64, 4, 1)};
  const MaskShare shares[] = {{{MaskKind::kLocalSliding, 8}, 3}, {{MaskKind::kCausal, 0}, 2}};
  const LayeredWork work = count_layered_work(rows, {}, shares);
  const RingWork window = count_ring_work(rows, {}, MaskKind::kLocalSliding, 8);
  const RingWork causal = count_ring_work(rows, {}, MaskKind::kCausal, 0);
  const auto all = static_cast<double>(3 * window.all() + 2 * causal.all());
  // The last rank is the busiest under both masks.
  EXPECT_DOUBLE_EQ(work.imbalance(),
                   4 * static_cast<double>(3 * window.of_rank(3) + 2 * causal.of_rank(3)) / all);
  EXPECT_DOUBLE_EQ(
      work.step_imbalance(),
      4 * static_cast<double>(3 * window.busiest_by_hop() + 2 * causal.busiest_by_hop()) / all);
  EXPECT_EQ(work.foreign_blocks(), 3 * 3 + 2 * 6);
}

// The choice on the shrunken row is that of the full row.
TEST(CheapestPlacement, IsNearTheBestOfTheFullRow) {
  for (MaskKind mask : {MaskKind::kCausal, MaskKind::kLocalSliding, MaskKind::kChunk}) {
    for (int64_t window : {100, 700, 1500, 5000}) {
      double least = 1e9;
      for (PlacementKind kind :
           {PlacementKind::kContiguous, PlacementKind::kDualChunkSwap, PlacementKind::kStriped}) {
        least = std::min(least, work_of(kind, 8192, 8, {}, mask, window).step_imbalance());
      }
      const PlacementKind chosen = cheapest(8192, 8, mask, window);
      EXPECT_LE(work_of(chosen, 8192, 8, {}, mask, window).step_imbalance(), 1.05 * least)
          << name_of(mask) << " " << window << " " << name_of(chosen);
    }
  }
}

}  // namespace
}  // namespace odyssey
