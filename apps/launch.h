// SPDX-License-Identifier: Apache-2.0
// Starts the ranks of a command, as threads of this process or as the MPI processes that mpirun or
// srun started, and turns whatever they throw into one message on stderr and an exit code.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "odyssey/comm/group.h"
#include "odyssey/config/run_config.h"

namespace odyssey {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;    // while running
inline constexpr int kExitBadUsage = 2;  // or configuration, or file

enum class Engine { kAuto, kThreads, kMpi };  // auto: MPI when mpirun or srun started the process

struct LaunchOptions {
  Engine engine = Engine::kAuto;
  int64_t ranks = 0;  // 0: as many as the axes multiply to
};

// Finds out what to run on `available_ranks` ranks (0: as many as it takes), and everything that
// can be wrong with it. Called once in each process, before any rank runs.
using Configure = std::function<RunConfig(int64_t available_ranks)>;
// Runs on every rank. Returns the exit code, the same on all ranks.
using Body = std::function<int(const RunConfig& config, Group& world)>;

// Returns the exit code. Every rank starts with the group's wait limit, its OpenMP threads, and the
// certainty that all ranks have the same configuration.
int launch(const LaunchOptions& options, const Configure& configure, const Body& body);

// "odyssey: error: <text>" once, however many processes there are. Returns kExitBadUsage.
int report_user_error(const std::string& text);

// Runs the task on rank 0; a UserError there becomes one on all ranks. Collective.
void on_rank_0(Group& world, const std::function<void()>& task);

// The rank that mpirun or srun gave this process, from its environment; 0 without one.
int launcher_rank();

}  // namespace odyssey
