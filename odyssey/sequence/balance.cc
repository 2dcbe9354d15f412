// SPDX-License-Identifier: Apache-2.0
#include "odyssey/sequence/balance.h"

#include <algorithm>
#include <iterator>

#include "odyssey/base/error.h"
#include "odyssey/sequence/shard.h"

namespace odyssey {

int64_t RingWork::of_rank(int rank) const {
  int64_t sum = 0;
  for (int hop = 0; hop < ring_size; ++hop) sum += at(rank, hop);
  return sum;
}

int64_t RingWork::all() const {
  int64_t sum = 0;
  for (int64_t count : pairs) sum += count;
  return sum;
}

int64_t RingWork::foreign_blocks() const {
  int64_t blocks = 0;
  for (int rank = 0; rank < ring_size; ++rank) {
    for (int hop = 1; hop < ring_size; ++hop) blocks += at(rank, hop) > 0;
  }
  return blocks;
}

int64_t RingWork::busiest_by_hop() const {
  int64_t busiest = 0;
  for (int hop = 0; hop < ring_size; ++hop) {
    int64_t most = 0;
    for (int rank = 0; rank < ring_size; ++rank) most = std::max(most, at(rank, hop));
    busiest += most;
  }
  return busiest;
}

double RingWork::imbalance() const {
  return LayeredWork{{*this}, {1}}.imbalance();
}

double RingWork::step_imbalance() const {
  return LayeredWork{{*this}, {1}}.step_imbalance();
}

// In doubles: pairs times layers may exceed 2^63.
double LayeredWork::imbalance() const {
  const int ring = works.empty() ? 1 : works[0].ring_size;
  double most = 0, all = 0;
  for (int rank = 0; rank < ring; ++rank) {
    double mine = 0;
    for (size_t i = 0; i < works.size(); ++i) {
      mine += static_cast<double>(works[i].of_rank(rank)) * static_cast<double>(layers[i]);
    }
    most = std::max(most, mine);
    all += mine;
  }
  return all == 0 ? 1 : most * ring / all;
}

double LayeredWork::step_imbalance() const {
  double busiest = 0, all = 0;
  for (size_t i = 0; i < works.size(); ++i) {
    const auto count = static_cast<double>(layers[i]);
    busiest += static_cast<double>(works[i].busiest_by_hop()) * count;
    all += static_cast<double>(works[i].all()) * count;
  }
  return all == 0 ? 1 : busiest * works[0].ring_size / all;
}

int64_t LayeredWork::foreign_blocks() const {
  int64_t blocks = 0;
  for (size_t i = 0; i < works.size(); ++i) blocks += works[i].foreign_blocks() * layers[i];
  return blocks;
}

RingWork count_ring_work(std::span<const Placement> rows, std::span<const int32_t> segments,
                         MaskKind kind, int64_t window) {
  RingWork work;
  if (rows.empty()) return {1, {0}};
  const int ring = rows[0].ring_size();
  work.ring_size = ring;
  work.pairs.assign(int64_t{ring} * ring, 0);
  for (size_t b = 0; b < rows.size(); ++b) {
    const auto length = static_cast<size_t>(rows[b].sequence_length());
    ODYSSEY_CHECK(rows[b].ring_size() == ring, "rings of {} and {}", ring, rows[b].ring_size());
    std::vector<std::vector<Run>> runs(ring);
    std::vector<std::vector<int32_t>> ids(ring);
    for (int r = 0; r < ring; ++r) {
      runs[r] = rows[b].ring_block(r);
      if (segments.empty()) continue;
      ids[r].resize(count_rows(runs[r]));
      take_rows(runs[r], segments.subspan(b * length, length), ids[r]);
    }
    for (int r = 0; r < ring; ++r) {
      for (int hop = 0; hop < ring; ++hop) {
        const int block = (r - hop + ring) % ring;
        work.pairs[int64_t{r} * ring + hop] +=
            count_visible_pairs({{runs[r], ids[r]}, {runs[block], ids[block]}, kind, window});
      }
    }
  }
  return work;
}

LayeredWork count_layered_work(std::span<const Placement> rows, std::span<const int32_t> segments,
                               std::span<const MaskShare> masks) {
  LayeredWork work;
  for (const MaskShare& share : masks) {
    work.works.push_back(count_ring_work(rows, segments, share.mask.kind, share.mask.window));
    work.layers.push_back(share.layers);
  }
  return work;
}

PlacementKind cheapest_placement(int64_t sequence_length, int ring_size,
                                 std::span<const MaskShare> masks) {
  if (sequence_length == 0) return PlacementKind::kDualChunkSwap;
  constexpr int kMostRanks = 64;
  constexpr int64_t kMostTokens = 64;  // of a rank of the small row; 2 % is more than one of them
  constexpr double kAsGood = 1.02;
  const int ring = std::min(ring_size, kMostRanks);
  const double part = static_cast<double>(sequence_length) / ring_size;
  const double shrink = std::min(1.0, kMostTokens / part);
  const auto length = static_cast<int64_t>(part * shrink * ring);
  const auto shrunken = [&](int64_t least) {
    std::vector<MaskShare> small(masks.begin(), masks.end());
    for (MaskShare& share : small) {
      const auto shrunk = static_cast<int64_t>(static_cast<double>(share.mask.window) * shrink);
      share.mask.window = std::min(share.mask.window, std::max(least, shrunk));
    }
    return small;
  };
  // A window of 2 still sees a neighbour, of 1 it would not. To see as many blocks as the full one
  // does in stripes it needs a row of each; for work that would be too wide.
  const std::vector<MaskShare> for_work = shrunken(2), for_blocks = shrunken(ring);

  constexpr PlacementKind kCandidates[] = {PlacementKind::kContiguous,
                                           PlacementKind::kDualChunkSwap, PlacementKind::kStriped};
  std::vector<double> imbalances;
  std::vector<int64_t> blocks;
  for (PlacementKind candidate : kCandidates) {
    const Placement placement(candidate, length, ring, 1);
    const std::span<const Placement> row(&placement, 1);
    imbalances.push_back(count_layered_work(row, {}, for_work).step_imbalance());
    blocks.push_back(count_layered_work(row, {}, for_blocks).foreign_blocks());
  }
  const double least = *std::ranges::min_element(imbalances);
  size_t best = std::size(kCandidates);
  for (size_t i = 0; i < std::size(kCandidates); ++i) {
    if (imbalances[i] > kAsGood * least) continue;
    if (best == std::size(kCandidates) || blocks[i] < blocks[best]) best = i;
  }
  return kCandidates[best];
}

}  // namespace odyssey
