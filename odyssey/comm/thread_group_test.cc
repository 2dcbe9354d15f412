// SPDX-License-Identifier: Apache-2.0
// The common cases over many rank counts, and what only thread ranks promise: how they fail.
#include "odyssey/comm/thread_group.h"

#include <array>
#include <chrono>
#include <ctime>
#include <thread>

#include <gmock/gmock.h>

#include "odyssey/base/error.h"
#include "odyssey/comm/all_reduce.h"
#include "odyssey/comm/barrier.h"
#include "odyssey/comm/comm_cases.h"
#include "odyssey/comm/mpi_group.h"
#include "odyssey/comm/pieces.h"

namespace odyssey {
namespace {

using testing::HasSubstr;

class OnThreads : public testing::TestWithParam<std::tuple<CommCase, int>> {};

TEST_P(OnThreads, Case) {
  const auto& [comm_case, ranks] = GetParam();
  run_on_threads(ranks, [&](Group& world) {
    world.set_wait_limit_seconds(60);
    comm_case.body(world);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, OnThreads,
                         testing::Combine(testing::ValuesIn(all_comm_cases()),
                                          testing::Values(1, 2, 3, 4, 5, 7, 8)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + "On" +
                                  std::to_string(std::get<1>(test.param));
                         });

template <class Error>
std::string thrown_by(int ranks, const std::function<void(Group&)>& body) {
  const auto start = std::chrono::steady_clock::now();
  std::string text = "nothing was thrown";
  try {
    run_on_threads(ranks, body);
  } catch (const Error& error) {
    text = error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  return text;
}

// Waits for a message that never comes.
void wait_for_ever(Group& group) {
  std::vector<std::byte> message(10);
  RequestPtr request = group.receive(message, (group.rank() + 1) % group.size(), Tag::kUser);
  group.wait(request);
}

// Also beyond 2 and 4 GiB, where a count or a place of 32 bits wraps.
TEST(Pieces, CoverEveryByteOnceWithinTheLimit) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  for (int64_t limit : {int64_t{1'000'003}, kGiB, 2 * kGiB - 1}) {
    for (int64_t size : {int64_t{0}, int64_t{1}, limit - 1, limit, limit + 1, int64_t{3'000'010},
                         2 * kGiB - 1, 2 * kGiB, 2 * kGiB + 8, 5 * kGiB + 1}) {
      const Pieces pieces{size, limit};
      int64_t next = 0;
      for (int64_t piece = 0; piece < pieces.count(); ++piece) {
        ASSERT_EQ(pieces.begin(piece), next) << size << " in pieces of " << limit;
        ASSERT_GE(pieces.bytes(piece), 0);
        ASSERT_LE(pieces.bytes(piece), limit);
        next += pieces.bytes(piece);
      }
      ASSERT_EQ(next, size);
      // The last one is smaller, so other sizes have another number of pieces or another last one.
      ASSERT_LT(pieces.bytes(pieces.count() - 1), limit);
    }
  }
}

TEST(ThreadFailure, EndsTheWaitsOfAllOthersWithRankAndCause) {
  std::vector<std::string> seen(8);
  const auto body = [&](Group& world) {
    if (world.rank() == 3) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      throw std::runtime_error("disk full");
    }
    try {
      const auto part = world.split(world.rank() == 3 ? 1 : 0, "never complete");
    } catch (const RunError& error) {
      seen[static_cast<size_t>(world.rank())] = error.what();
      throw;
    }
  };
  EXPECT_EQ(thrown_by<RunError>(8, body), "rank 3 of 8 failed: disk full");
  for (size_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(seen[rank], rank == 3 ? "" : "rank 3 of 8 failed: disk full");
  }
}

TEST(ThreadFailure, ReachesGroupsThatTheFailedRankIsNotIn) {
  const auto body = [](Group& world) {
    const auto part = world.split(world.rank() == 2 ? 1 : 0, "others");
    if (world.rank() == 2) throw std::runtime_error("gone");
    wait_for_ever(*part);
  };
  EXPECT_EQ(thrown_by<RunError>(5, body), "rank 2 of 5 failed: gone");
}

TEST(ThreadFailure, KeepsAUserErrorAsItIs) {
  const auto body = [](Group& world) {
    if (world.rank() == 1) throw UserError("steps: expected 1 or more, got 0");
    wait_for_ever(world);
  };
  EXPECT_EQ(thrown_by<UserError>(4, body), "steps: expected 1 or more, got 0");
}

TEST(ThreadFailure, OfAnUnknownKindIsReported) {
  const auto body = [](Group& world) {
    if (world.rank() == 0) throw 42;
    wait_for_ever(world);
  };
  EXPECT_THAT(thrown_by<RunError>(2, body), HasSubstr("rank 0 of 2 failed"));
}

TEST(ThreadFailure, StopsARankThatOnlySends) {
  const auto body = [](Group& world) {
    if (world.rank() == 0) throw std::runtime_error("gone");
    const std::vector<std::byte> message(4);
    std::vector<RequestPtr> requests;
    for (;;) requests.push_back(world.send(message, 0, Tag::kUser));
  };
  EXPECT_EQ(thrown_by<RunError>(2, body), "rank 0 of 2 failed: gone");
}

TEST(ThreadFailure, FreesMemoryOnlyAfterItsTransfers) {
  // Ranks unwind with large transfers half done; the sanitizers watch.
  for (int trial = 0; trial < 30; ++trial) {
    const auto body = [&](Group& world) {
      for (int round = 0;; ++round) {
        std::vector<std::byte> out(200'000), in(200'000);
        std::array<RequestPtr, 2> requests;
        requests[0] = world.receive(in, (world.rank() + 3) % 4, Tag::kUser);
        requests[1] = world.send(out, (world.rank() + 1) % 4, Tag::kUser);
        if (world.rank() == 2 && round == trial) throw std::runtime_error("gone");
        world.wait_all(requests);
      }
    };
    EXPECT_EQ(thrown_by<RunError>(4, body), "rank 2 of 4 failed: gone");
  }
}

TEST(ThreadFailure, WithMismatchedSizesNamesBoth) {
  const auto body = [](Group& world) {
    std::vector<std::byte> message(world.rank() == 0 ? 5 : 3);
    RequestPtr request = world.rank() == 0 ? world.send(message, 1, Tag::kShift)
                                           : world.receive(message, 0, Tag::kShift);
    world.wait(request);
  };
  EXPECT_THAT(
      thrown_by<RunError>(2, body),
      HasSubstr("shift: rank 0 of group \"world\" sends 5 bytes to rank 1, which receives 3"));
}

TEST(ThreadRanks, OneRankRunsOnTheCallingThread) {
  const auto caller = std::this_thread::get_id();
  run_on_threads(1, [&](Group& world) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(world.size(), 1);
  });
  EXPECT_THROW(run_on_threads(1, [](Group&) { throw UserError("bad"); }), UserError);
  EXPECT_THROW(run_on_threads(0, [](Group&) {}), std::logic_error);
}

TEST(ThreadRanks, ManySmallMessagesNeitherLoseNorMixAnything) {
  run_on_threads(8, [](Group& world) {
    for (int round = 0; round < 300; ++round) {
      std::array<double, 2> values{1.0 * world.rank(), 1.0 * round};
      all_reduce_sum(world, values);
      ASSERT_EQ(values[0], 28.0);
      ASSERT_EQ(values[1], 8.0 * round);
      barrier(world);
    }
  });
}

TEST(ThreadRanks, WaitingCostsLittleProcessorTime) {
  const std::clock_t start = std::clock();
  run_on_threads(8, [](Group& world) {
    if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    barrier(world);
  });
  // Seven ranks waited half a second each; spinning would cost all cores for that long.
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 0.25);
}

TEST(MpiSession, IsRefusedWithARemedyWhereMpiIsNotBuiltIn) {
  if (mpi_available()) GTEST_SKIP() << "this build has MPI";
  try {
    MpiSession session;
    FAIL() << "nothing was thrown";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a build without MPI"));
    EXPECT_THAT(error.what(), HasSubstr("-DODYSSEY_MPI=ON"));
  }
}

}  // namespace
}  // namespace odyssey
