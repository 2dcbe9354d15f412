// SPDX-License-Identifier: Apache-2.0
#include "odyssey/comm/nodes.h"

#include <cstdlib>
#include <optional>
#include <set>
#include <string>

#include "odyssey/base/error.h"
#include "odyssey/comm/all_gather.h"
#include "odyssey/comm/broadcast.h"

namespace odyssey {
namespace {

std::optional<int> simulated_ranks_per_node() {
  const char* text = std::getenv("ODYSSEY_RANKS_PER_NODE");
  if (text == nullptr) return {};
  char* end = nullptr;
  const long ranks = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || ranks < 1 || ranks > 1'000'000) {
    throw user_error("ODYSSEY_RANKS_PER_NODE", "a whole number from 1 to 1000000", text,
                     "Give the ranks of one simulated node, or take the variable out.");
  }
  return static_cast<int>(ranks);
}

// "host of rank 0: ranks 0-3; host of rank 4: ranks 4-7"; the first few hosts.
std::string describe(const std::vector<int>& hosts) {
  constexpr size_t kMostHosts = 4;
  const std::set<int> leaders(hosts.begin(), hosts.end());
  std::string text = fmt::format("{} {}", leaders.size(), leaders.size() == 1 ? "host" : "hosts");
  size_t listed = 0;
  for (const int leader : leaders) {
    if (listed++ == kMostHosts) return text + ", ...";
    text += listed == 1 ? ": ranks" : "; ranks";
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      if (hosts[rank] != leader) continue;
      size_t last = rank;
      while (last + 1 < hosts.size() && hosts[last + 1] == leader) ++last;
      text += last == rank ? fmt::format(" {}", rank) : fmt::format(" {}-{}", rank, last);
      rank = last;
    }
  }
  return text;
}

}  // namespace

std::vector<int> hosts_of_ranks(Group& world) {
  std::vector<int> hosts(static_cast<size_t>(world.size()));
  if (const std::optional<int> ranks = simulated_ranks_per_node()) {
    for (int rank = 0; rank < world.size(); ++rank) hosts[rank] = rank / *ranks * *ranks;
    return hosts;
  }
  const std::unique_ptr<Group> host = world.split_by_host("host");
  int leader = world.rank();
  broadcast(*host, std::as_writable_bytes(std::span(&leader, 1)), 0);
  const std::vector<int64_t> bytes(hosts.size(), sizeof(int));
  all_gather(world, std::as_bytes(std::span(&leader, 1)), std::as_writable_bytes(std::span(hosts)),
             bytes);
  return hosts;
}

void check_nodes(Group& world, int nodes) {
  if (nodes == 1) return;
  if (world.is_one_process() && !simulated_ranks_per_node()) return;
  const std::vector<int> hosts = hosts_of_ranks(world);
  ODYSSEY_CHECK(world.size() % nodes == 0, "{} ranks on {} nodes", world.size(), nodes);
  const int ranks = world.size() / nodes;
  bool fits = true;
  for (int rank = 0; rank < world.size(); ++rank) fits &= hosts[rank] == rank / ranks * ranks;
  if (fits) return;
  throw user_error(
      "dcn_context_parallelism x dcn_context_usp_ulysses_parallelism",
      fmt::format("{} hosts with {} neighbouring {} each", nodes, ranks,
                  ranks == 1 ? "rank" : "ranks"),
      describe(hosts),
      fmt::format("Start {} on each host, in order (mpirun --map-by ppr:{}:node), or change the "
                  "axes. ODYSSEY_RANKS_PER_NODE={} simulates such hosts.",
                  ranks, ranks, ranks));
}

}  // namespace odyssey
