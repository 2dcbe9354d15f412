// SPDX-License-Identifier: Apache-2.0
#include "apps/launch.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>

#include <fmt/core.h>

#include "apps/cores.h"
#include "odyssey/base/error.h"
#include "odyssey/comm/agreement.h"
#include "odyssey/comm/barrier.h"
#include "odyssey/comm/mpi_group.h"
#include "odyssey/comm/nodes.h"
#include "odyssey/comm/thread_group.h"

namespace odyssey {
namespace {

// Each thread rank takes a stack and a place in every group.
constexpr int64_t kMostThreadRanks = 4096;
// How long a rank with an error waits for the others: to come to the same error, or to end.
constexpr double kLeaveSeconds = 10;

void print_user_error(const std::string& text) {
  std::fflush(stdout);
  fmt::print(stderr, "odyssey: error: {}\n", text);
}

// What a failing rank says of an exception that is no UserError.
std::string text_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "out of memory";
  if (dynamic_cast<const std::logic_error*>(&error) != nullptr) {
    return fmt::format("a fault in odyssey itself, please report it: {}", error.what());
  }
  return error.what();
}

void print_failure(int rank, int ranks, const std::string& text) {
  std::fflush(stdout);
  fmt::print(stderr, "odyssey: [rank {} of {}] {}\n", rank, ranks, text);
}

int run_rank(const RunConfig& config, Group& world, const Body& body) {
  world.set_wait_limit_seconds(config.comm_timeout_seconds);
  check_agreement(world, config.hash, "configuration");
  check_nodes(world, config.parallel.ring_nodes * config.parallel.ulysses_nodes);
  choose_thread_count(world);
  return body(config, world);
}

// The first rank to fail; the others fail after it because they wait for it.
class FirstFailure {
 public:
  void record(int rank, int ranks, const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (rank_ >= 0) return;
    rank_ = rank;
    text_ = text;
    // A rank that hangs for good can't be joined; the process then ends without it.
    std::thread([rank, ranks, text] {
      std::this_thread::sleep_for(std::chrono::duration<double>(kLeaveSeconds));
      print_failure(rank, ranks, text);
      std::_Exit(kExitFailed);
    }).detach();
  }
  int rank() const { return rank_; }
  const std::string& text() const { return text_; }

 private:
  std::mutex mutex_;
  int rank_ = -1;
  std::string text_;
};

int number_in_environment(std::initializer_list<const char*> names, int otherwise) {
  for (const char* name : names) {
    if (const char* text = std::getenv(name)) return std::atoi(text);
  }
  return otherwise;
}

int launch_threads(const LaunchOptions& options, const Configure& configure, const Body& body) {
  const RunConfig config = configure(options.ranks);
  const int ranks = config.parallel.ranks();
  if (ranks > kMostThreadRanks) {
    throw user_error("ranks in one process", fmt::format("at most {}", kMostThreadRanks),
                     fmt::format("{}", ranks), "Take smaller axes, or start processes by mpirun.");
  }
  FirstFailure failure;
  int code = kExitDone;
  try {
    run_on_threads(ranks, [&](Group& world) {
      try {
        const int code_of_rank = run_rank(config, world, body);
        if (world.rank() == 0) code = code_of_rank;
      } catch (const UserError&) {
        throw;
      } catch (const std::exception& error) {
        failure.record(world.rank(), ranks, text_of(error));
        throw;
      }
    });
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {
    if (failure.rank() < 0)
      failure.record(0, ranks, text_of(error));  // a thread that did not start
    print_failure(failure.rank(), ranks, failure.text());
    return kExitFailed;
  }
  return code;
}

// A user error reaches all ranks alike: rank 0 prints, and nobody leaves before. mpirun may end the
// others as soon as one has left. A rank that is alone with its error ends the run.
int leave_with_user_error(MpiSession& session, Group& leaving, const std::string& text) {
  if (leaving.rank() == 0) print_user_error(text);
  try {
    barrier(leaving);
  } catch (const std::exception&) {
    if (leaving.rank() != 0) print_user_error(text);
    session.abort(kExitBadUsage);
  }
  return kExitBadUsage;
}

RunConfig configure_together(const LaunchOptions& options, const Configure& configure,
                             Group& world) {
  std::optional<RunConfig> config;
  std::string problem;
  try {
    if (options.ranks != 0 && options.ranks != world.size()) {
      throw user_error("--ranks", fmt::format("the {} processes that were started", world.size()),
                       fmt::format("{}", options.ranks),
                       "Leave --ranks out, or start another number of processes.");
    }
    config = configure(world.size());
  } catch (const UserError& error) {
    problem = error.what();
  }
  fail_together(world, problem);
  return *std::move(config);
}

int launch_mpi(const LaunchOptions& options, const Configure& configure, const Body& body) {
  MpiSession session;
  const std::unique_ptr<Group> world = session.world();
  // Of its own, so that no message of the command can be taken for one of these.
  const std::unique_ptr<Group> leaving = session.world();
  leaving->set_wait_limit_seconds(kLeaveSeconds);
  try {
    return run_rank(configure_together(options, configure, *world), *world, body);
  } catch (const UserError& error) {
    return leave_with_user_error(session, *leaving, error.what());
  } catch (const std::exception& error) {
    print_failure(world->rank(), world->size(), text_of(error));
    session.abort(kExitFailed);
  }
}

}  // namespace

void on_rank_0(Group& world, const std::function<void()>& task) {
  std::string error;
  if (world.rank() == 0) {
    try {
      task();
    } catch (const UserError& found) {
      error = found.what();
    }
  }
  fail_together(world, error);
}

int launcher_rank() {
  return number_in_environment({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}, 0);
}

int launch(const LaunchOptions& options, const Configure& configure, const Body& body) {
  // Several processes that each run all ranks would write the same files.
  const int processes = number_in_environment({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 1);
  if (options.engine == Engine::kThreads && processes > 1) {
    const UserError error =
        user_error("--comm threads", "one process", fmt::format("{}", processes),
                   "Leave --comm out, or start odyssey without mpirun.");
    return report_user_error(error.what());
  }
  const bool is_mpi =
      options.engine == Engine::kMpi || (options.engine == Engine::kAuto && launched_by_mpi());
  try {
    return is_mpi ? launch_mpi(options, configure, body) : launch_threads(options, configure, body);
  } catch (const UserError& error) {
    print_user_error(error.what());
    return kExitBadUsage;
  } catch (const std::exception& error) {
    print_failure(launcher_rank(), processes, text_of(error));
    return kExitFailed;
  }
}

int report_user_error(const std::string& text) {
  if (!launched_by_mpi() || !mpi_available()) {
    print_user_error(text);
    return kExitBadUsage;
  }
  // Through the ranks, so that one of them prints and no message is lost.
  const auto fail = [&](int64_t) -> RunConfig { throw UserError(text); };
  return launch({Engine::kMpi, 0}, fail, [](const RunConfig&, Group&) { return kExitDone; });
}

}  // namespace odyssey
