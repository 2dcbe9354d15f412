// SPDX-License-Identifier: Apache-2.0
// BenchRanks: runs the rows of a benchmark on more or fewer ranks in turn, as threads made for the
// row or as the first processes of an MPI run.
#pragma once
#include <functional>

#include "odyssey/comm/group.h"
#include "odyssey/config/run_config.h"

namespace odyssey {

class BenchRanks {
 public:
  // `world`: the processes of an MPI run, or one rank alone, which then makes threads.
  // `wait_limit_seconds` as comm_timeout_seconds.
  BenchRanks(Group& world, bool is_mpi, double wait_limit_seconds)
      : world_(world), is_mpi_(is_mpi), wait_limit_seconds_(wait_limit_seconds) {}

  bool is_mpi() const { return is_mpi_; }
  // Whether this process prints.
  bool prints() const { return world_.rank() == 0; }
  Group& world() const { return world_; }
  // Threads that one rank alone may use in place of `ranks` ranks: as many as they are, at most its
  // cores. 0 where the ranks have cores that it has not. Collective over the world.
  int threads_in_place_of(int ranks) const;

  // Runs body on ranks 0 to ranks - 1. Collective over the world; processes beyond them wait.
  void run(int ranks, const std::function<void(Group&)>& body) const;

 private:
  Group& world_;
  bool is_mpi_;
  double wait_limit_seconds_;
};

}  // namespace odyssey
