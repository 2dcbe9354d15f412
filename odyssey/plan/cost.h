// SPDX-License-Identifier: Apache-2.0
// The cost model: seconds of one training step, item by item, from counts, a machine and its
// constants. docs/planner.md derives every item.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "odyssey/plan/counts.h"
#include "odyssey/plan/job.h"

namespace odyssey {

struct CostItem {
  std::string_view name;
  double seconds = 0;
};

struct Cost {
  std::vector<CostItem> items;        // they add up to the step
  std::vector<std::string> findings;  // sentences such as "this layout splits a torus axis"
  double model_teraflops = 0;         // of a chip and step: causal halved, nothing computed twice

  double step_seconds() const;
  double seconds(std::string_view name) const;  // of one item; 0 where there is none
};

// What is timed: a whole step, or one attention call of each layer without anything around it.
enum class Scope { kStep, kAttention, kAttentionForward };

// `counts` = count(job), which is the slow part: a search may price one count often.
Cost estimate(const Job& job, const Counts& counts, Scope scope = Scope::kStep);

// What one forward attention call of one layer of that mask is made of, for drawing it: seconds.
struct CallParts {
  double tile = 0;                      // one active tile of every head and row of a rank
  double merge = 0, step = 0, hop = 0;  // of one ring step; the hop runs beside tiles and merge
  double exchange_in = 0, exchange_out = 0;
  double gather = 0;  // K and V of all ranks, and their passes through memory
  int64_t hops = 0;   // ring steps with a hop
};
CallParts call_parts(const Job& job, const Counts& counts, const MaskCounts& mask);

}  // namespace odyssey
