// SPDX-License-Identifier: Apache-2.0
// What ranks share on one machine: how many OpenMP threads a rank should use, which is its fair
// share of the cores that it may run on, and how many ranks share the memory.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "odyssey/comm/group.h"

namespace odyssey {

// Where one rank may run. A plain struct: it travels to the other ranks as bytes.
struct CoreSet {
  static constexpr int kMostCores = 1024;

  uint64_t host = 0;                             // a hash of the host's name
  std::array<uint64_t, kMostCores / 64> bits{};  // core i: bit i % 64 of word i / 64

  bool contains(int core) const { return ((bits[core / 64] >> (core % 64)) & 1U) != 0; }
};

// Of the calling thread.
CoreSet usable_cores();

// Every core is shared evenly by the ranks that may use it. At least 1.
int fair_threads(std::span<const CoreSet> ranks, int rank);

// Where every rank of the group may run. Collective.
std::vector<CoreSet> gather_cores(Group& world);

// Sets the calling rank's thread count to its fair share, unless the environment variable
// OMP_NUM_THREADS says how many. Collective.
void choose_thread_count(Group& world);

// Ranks on the machine of this rank, itself included. Collective.
int ranks_on_this_host(Group& world);

}  // namespace odyssey
