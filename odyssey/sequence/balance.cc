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

double RingWork::imbalance() const {
  int64_t most = 0;
  for (int rank = 0; rank < ring_size; ++rank) most = std::max(most, of_rank(rank));
  return most == 0 ? 1 : static_cast<double>(most) * ring_size / static_cast<double>(all());
}

double RingWork::step_imbalance() const {
  int64_t busiest = 0;
  for (int hop = 0; hop < ring_size; ++hop) {
    int64_t most = 0;
    for (int rank = 0; rank < ring_size; ++rank) most = std::max(most, at(rank, hop));
    busiest += most;
  }
  return busiest == 0 ? 1 : static_cast<double>(busiest) * ring_size / static_cast<double>(all());
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

PlacementKind cheapest_placement(int64_t sequence_length, int ring_size, MaskKind kind,
                                 int64_t window) {
  if (sequence_length == 0) return PlacementKind::kDualChunkSwap;
  constexpr int kMostRanks = 64;
  constexpr int64_t kMostTokens = 64;  // of a rank of the small row; 2 % is more than one of them
  constexpr double kAsGood = 1.02;
  const int ring = std::min(ring_size, kMostRanks);
  const double part = static_cast<double>(sequence_length) / ring_size;
  const double shrink = std::min(1.0, kMostTokens / part);
  const auto length = static_cast<int64_t>(part * shrink * ring);
  // A window of 2 still sees a neighbour, of 1 it would not.
  const auto shrunk = static_cast<int64_t>(static_cast<double>(window) * shrink);
  const int64_t small_window = std::min(window, std::max<int64_t>(2, shrunk));

  constexpr PlacementKind kCandidates[] = {PlacementKind::kContiguous,
                                           PlacementKind::kDualChunkSwap, PlacementKind::kStriped};
  std::vector<RingWork> works;
  double least = ring;
  for (PlacementKind candidate : kCandidates) {
    const Placement placement(candidate, length, ring, 1);
    works.push_back(count_ring_work({&placement, 1}, {}, kind, small_window));
    least = std::min(least, works.back().step_imbalance());
  }
  size_t best = std::size(kCandidates);
  for (size_t i = 0; i < works.size(); ++i) {
    if (works[i].step_imbalance() > kAsGood * least) continue;
    if (best == works.size() || works[i].foreign_blocks() < works[best].foreign_blocks()) best = i;
  }
  return kCandidates[best];
}

}  // namespace odyssey
