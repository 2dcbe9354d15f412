// SPDX-License-Identifier: Apache-2.0
// Timeline: what every ring rank does during one forward attention call of one layer, by the rule
// that the cost model prices: a ring step ends for all ranks together, when the slowest has done
// its tiles and its block has arrived.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "odyssey/plan/search.h"

namespace odyssey {

// One ring step of one rank, or several steps in a row where there are too many to draw.
struct TimeSlice {
  double begin = 0, end = 0;  // seconds since the call began
  double attend = 0;          // tiles and merging
  double transfer = 0;        // the block that comes meanwhile
  double wait() const { return end - begin - attend; }
};

struct Timeline {
  std::string title;
  int64_t ring_size = 1;
  int64_t steps_of_slice = 1;
  std::vector<int> ranks;                      // that are shown: evenly spread, at most kMostRanks
  std::vector<std::vector<TimeSlice>> slices;  // [ranks][slices]
  double exchange_in = 0;   // before the first slice: heads, or K and V of all ranks
  double exchange_out = 0;  // after the last
  double seconds = 0;

  static constexpr int kMostRanks = 64, kMostSlices = 64;
};

Timeline simulate_call(const Job& job, CountCache& cache);

}  // namespace odyssey
