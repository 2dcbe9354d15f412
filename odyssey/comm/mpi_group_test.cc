// SPDX-License-Identifier: Apache-2.0
// The common cases on MPI processes; run it under mpirun. With --fail-on-rank=N rank N fails while
// the others wait: the run must end at once with exit code 3.
#include "odyssey/comm/mpi_group.h"

#include <cstdio>

#include <gmock/gmock.h>

#include "odyssey/base/error.h"
#include "odyssey/comm/barrier.h"
#include "odyssey/comm/comm_cases.h"

namespace odyssey {
namespace {

Group* world = nullptr;

class OnProcesses : public testing::TestWithParam<CommCase> {};

TEST_P(OnProcesses, Case) {
  GetParam().body(*world);
  barrier(*world);
}

INSTANTIATE_TEST_SUITE_P(Mpi, OnProcesses, testing::ValuesIn(all_comm_cases()),
                         [](const auto& test) { return test.param.name; });

TEST(MpiSession, KnowsThatItWasLaunched) {
  EXPECT_TRUE(mpi_available());
  EXPECT_TRUE(launched_by_mpi());
}

// Rank 0 prints as usual, the others only what went wrong.
class FailurePrinter : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "[rank %d] %s:%d: %s\n", world->rank(),
                 result.file_name() != nullptr ? result.file_name() : "?", result.line_number(),
                 result.message());
  }
};

int run_cases(MpiSession& session) {
  if (world->rank() != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter);
  }
  // A rank that fails cannot know where the others are, so it ends them.
  if (RUN_ALL_TESTS() != 0) session.abort(1);
  barrier(*world);
  return 0;
}

int run_failure(MpiSession& session, int failing) {
  try {
    if (world->rank() == failing) throw RunError("disk full");
    std::byte message{};
    RequestPtr request = world->receive(std::span(&message, 1), failing, Tag::kUser);
    world->wait(request);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d of %d failed: %s\n", world->rank(), world->size(), error.what());
    session.abort(3);
  }
  return 0;
}

}  // namespace
}  // namespace odyssey

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  odyssey::MpiSession session;
  const auto group = session.world();
  odyssey::world = group.get();
  group->set_wait_limit_seconds(60);
  const std::string prefix = "--fail-on-rank=";
  if (argc > 1 && std::string(argv[1]).starts_with(prefix)) {
    return odyssey::run_failure(session, std::stoi(std::string(argv[1]).substr(prefix.size())));
  }
  return odyssey::run_cases(session);
}
