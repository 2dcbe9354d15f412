// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_ranks.h"

#include <algorithm>
#include <memory>

#include "apps/cores.h"
#include "odyssey/comm/barrier.h"
#include "odyssey/comm/thread_group.h"

namespace odyssey {

int BenchRanks::threads_in_place_of(int ranks) const {
  const std::vector<CoreSet> all = gather_cores(world_);
  for (const CoreSet& cores : all) {
    if (cores.host != all[0].host || cores.bits != all[0].bits) return 0;
  }
  return std::min(ranks, fair_threads(std::span(all).first(1), 0));
}

void BenchRanks::run(int ranks, const std::function<void(Group&)>& body) const {
  if (!is_mpi_) {
    run_on_threads(ranks, [&](Group& group) {
      group.set_wait_limit_seconds(wait_limit_seconds_);
      body(group);
    });
    return;
  }
  const bool takes_part = world_.rank() < ranks;
  const std::unique_ptr<Group> group = world_.split(takes_part ? 0 : 1, "bench");
  if (takes_part) body(*group);
  barrier(world_);
}

}  // namespace odyssey
