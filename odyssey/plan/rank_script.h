// SPDX-License-Identifier: Apache-2.0
// What one rank of a measured machine does in attention calls: its lists of schedule/step.h, step
// by step, as actions for rank_clock.h. The executor is context/parallel_attention.cc.
#pragma once
#include <vector>

#include "odyssey/plan/cpu_rates.h"
#include "odyssey/plan/rank_clock.h"
#include "odyssey/schedule/step.h"

namespace odyssey {

// Ranks of a context group in the order of hosts. Ring and Ulysses axes may lie across some.
struct HostMap {
  int ring = 1, ulysses = 1;              // sizes
  int ring_nodes = 1, ulysses_nodes = 1;  // parts of them on hosts of their own
  int ranks_per_host = 1;                 // of this group

  // Of ring rank r, Ulysses rank u; the host is place / ranks_per_host.
  int place(int r, int u) const;
};

struct RankScript {
  std::vector<RankAction> actions;
  // Seconds of a core: kernels, messages, head exchanges, passes over tensors.
  double attention = 0, transfers = 0, exchanges = 0, copies = 0;
};

// `forwards` forward calls of ring rank r, Ulysses rank u, then one backward call if asked for.
RankScript attention_script(const CpuRates& rates, const AttentionLayout& layout,
                            const HostMap& hosts, int r, int u, int forwards, bool backward);

}  // namespace odyssey
