// SPDX-License-Identifier: Apache-2.0
#include "apps/cores.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string_view>

#include <sched.h>
#include <unistd.h>

#include "odyssey/base/parallel_for.h"
#include "odyssey/comm/all_gather.h"

namespace odyssey {

CoreSet usable_cores() {
  static_assert(CoreSet::kMostCores <= CPU_SETSIZE);
  CoreSet cores;
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  cores.host = std::hash<std::string_view>{}(name);
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) CPU_SET(0, &set);
  for (int core = 0; core < CoreSet::kMostCores; ++core) {
    if (CPU_ISSET(core, &set)) cores.bits[core / 64] |= uint64_t{1} << (core % 64);
  }
  return cores;
}

int fair_threads(std::span<const CoreSet> ranks, int rank) {
  const CoreSet& mine = ranks[static_cast<size_t>(rank)];
  double share = 0;
  for (int core = 0; core < CoreSet::kMostCores; ++core) {
    if (!mine.contains(core)) continue;
    const auto users = std::count_if(ranks.begin(), ranks.end(), [&](const CoreSet& other) {
      return other.host == mine.host && other.contains(core);
    });
    share += 1 / static_cast<double>(users);
  }
  constexpr double kRounding = 1e-6;
  return std::max(1, static_cast<int>(share + kRounding));
}

std::vector<CoreSet> gather_cores(Group& world) {
  const CoreSet mine = usable_cores();
  std::vector<CoreSet> all(static_cast<size_t>(world.size()));
  const std::vector<int64_t> bytes(all.size(), sizeof(CoreSet));
  all_gather(world, std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)),
             bytes);
  return all;
}

void choose_thread_count(Group& world) {
  const char* wish = std::getenv("OMP_NUM_THREADS");
  if (wish != nullptr && *wish != '\0') return;
  set_thread_count(fair_threads(gather_cores(world), world.rank()));
}

int ranks_on_this_host(Group& world) {
  const std::vector<CoreSet> all = gather_cores(world);
  const uint64_t host = all[static_cast<size_t>(world.rank())].host;
  return static_cast<int>(std::count_if(all.begin(), all.end(),
                                        [&](const CoreSet& cores) { return cores.host == host; }));
}

}  // namespace odyssey
