// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "odyssey/base/bf16.h"
#include "odyssey/base/buffer.h"
#include "odyssey/base/error.h"
#include "odyssey/base/parallel_for.h"
#include "odyssey/base/random.h"
#include "odyssey/base/view.h"

namespace odyssey {
namespace {

TEST(Bf16, RoundsToNearestEvenAndKeepsSpecialValues) {
  EXPECT_EQ(to_float(bf16(1.0f)), 1.0f);
  EXPECT_EQ(bf16(1.00390625f).bits, 0x3f80);  // half way between two values: to the even one
  EXPECT_EQ(bf16(1.01171875f).bits, 0x3f82);
  EXPECT_TRUE(std::isinf(to_float(bf16(std::numeric_limits<float>::infinity()))));
  EXPECT_TRUE(std::isinf(to_float(bf16(std::numeric_limits<float>::max()))));
  EXPECT_TRUE(std::isnan(to_float(bf16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(Buffer, IsAlignedZeroedAndCounted) {
  const int64_t before = buffer_bytes_alive();
  {
    Buffer<float> buffer(1000);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    for (float x : buffer.span()) EXPECT_EQ(x, 0.0f);
    EXPECT_EQ(buffer_bytes_alive(), before + 4000);
    Buffer<float> moved = std::move(buffer);
    EXPECT_EQ(moved.size(), 1000);
  }
  EXPECT_EQ(buffer_bytes_alive(), before);
}

TEST(View, SlicesAndIndexesByStride) {
  std::vector<int> data(24);
  for (int i = 0; i < 24; ++i) data[i] = i;
  View<int, 3> view(data.data(), {2, 3, 4});
  EXPECT_EQ(view(1, 2, 3), 23);
  EXPECT_EQ(view[1](2, 3), 23);
  View<const int, 3> part = view.slice(1, 1, 3);
  EXPECT_EQ(part.extent(1), 2);
  EXPECT_EQ(part(1, 1, 3), 23);
  EXPECT_FALSE(part.is_contiguous());
  EXPECT_TRUE(view.is_contiguous());
  EXPECT_THROW(view.slice(1, 2, 4), std::logic_error);
}

TEST(Random, MatchesThePublishedPhiloxVectors) {
  // Known answers of the Random123 distribution, philox4x32-10.
  EXPECT_EQ(Random(0, 0).words(0),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Random(0xffffffffffffffff, 0xffffffffffffffff).words(0xffffffffffffffff),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Random, NormalHasTheRightMoments) {
  const Random random(7, 3);
  double sum = 0, squares = 0, cut_squares = 0, cut_most = 0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const double x = random.normal(i), y = random.truncated_normal(i);
    sum += x;
    squares += x * x;
    cut_squares += y * y;
    cut_most = std::max(cut_most, std::abs(y));
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.02);
  EXPECT_NEAR(squares / kCount, 1.0, 0.02);
  EXPECT_NEAR(cut_squares / kCount, 1.0, 0.02);
  EXPECT_LT(cut_most, 2.2738);
}

TEST(ParallelFor, VisitsEveryItemOnce) {
  std::vector<int> visits(1000);
  parallel_for(1000, [&](int64_t i) { ++visits[i]; });
  parallel_ranges(1000, 10, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++visits[i];
  });
  for (int count : visits) EXPECT_EQ(count, 2);
}

TEST(UserError, HasTheFourParts) {
  EXPECT_STREQ(user_error("steps", "a positive number", "-1", "Set steps=1 or more.").what(),
               "steps: expected a positive number, got -1. Set steps=1 or more.");
}

}  // namespace
}  // namespace odyssey
