// SPDX-License-Identifier: Apache-2.0
#include "apps/progress.h"

#include <gtest/gtest.h>

#include "apps/describe.h"

namespace odyssey {
namespace {

TEST(ProgressText, ShowsBarStepsAndTime) {
  EXPECT_EQ(progress_text(20, 40, 10, 47), "[###########...........] 20/40 steps, 10 s left");
  EXPECT_EQ(progress_text(0, 40, -1, 25), "[............] 0/40 steps");
  EXPECT_EQ(progress_text(40, 40, 0, 200).substr(0, 33), "[##############################] ");
}

TEST(ProgressText, NeverWiderThanTheTerminal) {
  for (int columns = 0; columns < 100; ++columns) {
    for (int64_t done : {0, 1, 999, 1000}) {
      const auto width = progress_text(done, 1000, 1e6, columns).size();
      EXPECT_LE(width, static_cast<size_t>(columns)) << done;
    }
  }
}

TEST(ProgressText, NoStepsAtAll) {
  EXPECT_EQ(progress_text(0, 0, -1, 20), "[........] 0/0 steps");
}

TEST(ReadableTime, UsesTwoUnitsAtMost) {
  EXPECT_EQ(readable_time(0), "0 s");
  EXPECT_EQ(readable_time(-3), "0 s");
  EXPECT_EQ(readable_time(119.4), "119 s");
  EXPECT_EQ(readable_time(119.6), "2 min");
  EXPECT_EQ(readable_time(7199), "119 min");
  EXPECT_EQ(readable_time(3 * 3600 + 5 * 60), "3 h 05 min");
  EXPECT_EQ(readable_time(52 * 3600), "2 d 04 h");
}

TEST(Describe, BytesAndCountsHaveThreeDigits) {
  EXPECT_EQ(readable_bytes(0), "0 B");
  EXPECT_EQ(readable_bytes(999), "999 B");
  EXPECT_EQ(readable_bytes(1500), "1.50 kB");
  EXPECT_EQ(readable_bytes(999'999), "1.00 MB");
  EXPECT_EQ(readable_bytes(12'340'000'000), "12.3 GB");
  EXPECT_EQ(readable_count(950), "950");
  EXPECT_EQ(readable_count(12'345), "12.3 thousand");
  EXPECT_EQ(readable_count(999'600), "1.00 million");
  EXPECT_EQ(readable_count(8'030'261'248), "8.03 billion");
}

TEST(Describe, LayoutNamesOnlyAxesThatSplit) {
  ParallelConfig parallel;
  EXPECT_EQ(describe(parallel), "all_gather 1, contiguous, 1 rank");
  parallel.strategy = Strategy::kUsp;
  parallel.ring_size = 4;
  parallel.ulysses_size = 2;
  parallel.fsdp = 3;
  parallel.placement = PlacementKind::kDualChunkSwap;
  EXPECT_EQ(describe(parallel), "usp: ring 4 x ulysses 2, dual_chunk_swap, fsdp 3, 24 ranks");
}

}  // namespace
}  // namespace odyssey
