// SPDX-License-Identifier: Apache-2.0
#include "apps/cores.h"

#include <cstdlib>
#include <vector>

#include <gtest/gtest.h>

#include "odyssey/base/parallel_for.h"
#include "odyssey/comm/thread_group.h"

namespace odyssey {
namespace {

CoreSet cores(int first, int count, uint64_t host = 1) {
  CoreSet set;
  set.host = host;
  for (int core = first; core < first + count; ++core) {
    set.bits[core / 64] |= uint64_t{1} << (core % 64);
  }
  return set;
}

TEST(FairThreads, OneRankUsesAllItsCores) {
  EXPECT_EQ(fair_threads(std::vector{cores(0, 96)}, 0), 96);
  EXPECT_EQ(fair_threads(std::vector{cores(60, 8)}, 0), 8);
}

TEST(FairThreads, RanksThatMayRunAnywhereShareEvenly) {
  EXPECT_EQ(fair_threads(std::vector(4, cores(0, 8)), 3), 2);
  EXPECT_EQ(fair_threads(std::vector(3, cores(0, 8)), 0), 2);
  EXPECT_EQ(fair_threads(std::vector(3, cores(0, 3)), 2), 1);
}

TEST(FairThreads, MoreRanksThanCoresGetOneEach) {
  EXPECT_EQ(fair_threads(std::vector(8, cores(0, 2)), 5), 1);
}

TEST(FairThreads, RanksBoundToCoresOfTheirOwnKeepThem) {
  const std::vector<CoreSet> ranks{cores(0, 8), cores(8, 4)};
  EXPECT_EQ(fair_threads(ranks, 0), 8);
  EXPECT_EQ(fair_threads(ranks, 1), 4);
}

TEST(FairThreads, RanksOnOtherHostsTakeNothing) {
  EXPECT_EQ(fair_threads(std::vector{cores(0, 8, 1), cores(0, 8, 2)}, 0), 8);
}

TEST(UsableCores, HoldAtLeastOne) {
  const CoreSet mine = usable_cores();
  int count = 0;
  for (int core = 0; core < CoreSet::kMostCores; ++core) count += mine.contains(core) ? 1 : 0;
  EXPECT_GE(count, 1);
}

TEST(ChooseThreadCount, LeavesOmpNumThreadsAlone) {
  ::setenv("OMP_NUM_THREADS", "3", 1);
  run_on_threads(2, [](Group& world) {
    set_thread_count(3);
    choose_thread_count(world);
    EXPECT_EQ(thread_count(), 3);
  });
  ::unsetenv("OMP_NUM_THREADS");
  run_on_threads(64, [](Group& world) {
    set_thread_count(1000);
    choose_thread_count(world);
    EXPECT_LT(thread_count(), 1000);
  });
  ::setenv("OMP_NUM_THREADS", "1", 1);
}

TEST(RanksOnThisHost, CountsThreadRanks) {
  run_on_threads(3, [](Group& world) { EXPECT_EQ(ranks_on_this_host(world), 3); });
  run_on_threads(1, [](Group& world) { EXPECT_EQ(ranks_on_this_host(world), 1); });
}

}  // namespace
}  // namespace odyssey
