// SPDX-License-Identifier: Apache-2.0
// How long ranks take that share cores and wait for each other: runs their lists of actions on
// model cores. Nothing is computed; only time passes.
//
// Ranks of one host that have work share its cores evenly, as the operating system shares them: so
// with more ranks than cores the CPU seconds add up, and when most ranks are done the busiest one
// goes on alone. Both decide how long a contiguous ring takes on few cores.
#pragma once
#include <cstdint>
#include <vector>

namespace odyssey {

struct RankAction {
  enum class Kind {
    kWork,     // `seconds` of a core
    kSend,     // to `peer`; never waits
    kReceive,  // waits for the next message from `peer`
  };
  Kind kind = Kind::kWork;
  double seconds = 0;  // of a core; of kSend: what the message is under way, no core being busy
  int peer = -1;
};

struct ModelCores {
  double cores = 1;         // of a host, for these ranks
  int ranks_per_host = 1;   // rank r is on host r / ranks_per_host
  double most_of_rank = 1;  // cores that one rank can use: its threads
};

struct RankTimes {
  double seconds = 0;               // until the last rank is done
  double busiest = 0, all = 0;      // seconds of a core: of the rank that has most, of all ranks
  std::vector<double> end_of_rank;  // seconds
};

// actions[r]: the list of rank r. Every receive must have its send.
RankTimes run_ranks(const std::vector<std::vector<RankAction>>& actions, const ModelCores& cores);

}  // namespace odyssey
