// SPDX-License-Identifier: Apache-2.0
#include "odyssey/plan/timeline.h"

#include <algorithm>

#include <fmt/core.h>

namespace odyssey {
namespace {

std::vector<int> spread(int64_t count, int most) {
  const int64_t shown = std::min<int64_t>(count, most);
  std::vector<int> picked;
  for (int64_t i = 0; i < shown; ++i) {
    picked.push_back(static_cast<int>(shown == 1 ? 0 : i * (count - 1) / (shown - 1)));
  }
  return picked;
}

}  // namespace

Timeline simulate_call(const Job& job, CountCache& cache) {
  const Counts& counts = cache.of(job);
  // Of layers with different masks the one with most work.
  const MaskCounts& mask = *std::ranges::max_element(counts.masks, {}, &MaskCounts::total_pairs);
  const CallParts parts = call_parts(job, counts, mask);
  const RunConfig& run = job.config.run;
  const ParallelConfig& p = run.parallel;
  const Placement placement(p.placement, run.data.sequence_length, p.ring_size, p.ulysses_size);
  const bool ring = p.ring_size > 1 && !p.outer_gather;
  const auto steps = static_cast<int>(mask.forward.most.size());

  Timeline timeline;
  timeline.title = fmt::format(
      "{}, {} tokens on {}: one attention call{}, forward", name_with_placement(p),
      run.data.sequence_length, job.hardware.name,
      counts.masks.size() > 1 ? fmt::format(" of a {} layer", name_of(mask.share.mask.kind)) : "");
  timeline.ring_size = p.ring_size;
  timeline.steps_of_slice = (steps + Timeline::kMostSlices - 1) / Timeline::kMostSlices;
  timeline.ranks = spread(p.ring_size, Timeline::kMostRanks);
  timeline.slices.resize(timeline.ranks.size());
  timeline.exchange_in = parts.exchange_in + parts.gather;
  timeline.exchange_out = parts.exchange_out;
  double now = timeline.exchange_in;
  for (int step = 0; step < steps; ++step) {
    const double hop = step < parts.hops ? parts.hop : 0;
    const double slowest = static_cast<double>(mask.forward.most[step]) * parts.tile + parts.merge;
    const double end = now + parts.step + std::max(slowest, hop);
    for (size_t i = 0; i < timeline.ranks.size(); ++i) {
      const int r = timeline.ranks[i];
      const int block = ring ? (r - step + p.ring_size) % p.ring_size : kAllKeys;
      const int64_t tiles = count_pair_tiles(placement, mask.share.mask.kind,
                                             mask.share.mask.window, mask.forward.tile, r, block);
      std::vector<TimeSlice>& mine = timeline.slices[i];
      if (step % timeline.steps_of_slice == 0) mine.push_back({now, now, 0, 0});
      mine.back().end = end;
      mine.back().attend += static_cast<double>(tiles) * parts.tile + parts.merge;
      mine.back().transfer += hop;
    }
    now = end;
  }
  timeline.seconds = now + timeline.exchange_out;
  return timeline;
}

}  // namespace odyssey
