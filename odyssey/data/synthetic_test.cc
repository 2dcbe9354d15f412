// SPDX-License-Identifier: Apache-2.0
#include "odyssey/data/synthetic.h"

#include <set>

#include <gtest/gtest.h>

#include "odyssey/data/dataset.h"

namespace odyssey {
namespace {

DataConfig config_of(int64_t length, int64_t rows) {
  DataConfig config;
  config.sequence_length = length;
  config.global_batch_rows = rows;
  return config;
}

TEST(SyntheticDataset, TargetsAreTheTokensShiftedByOne) {
  for (int64_t length : {1, 2, 7, 64}) {
    SyntheticDataset data(config_of(length, 3), 50);
    const Batch batch = data.next(0, 3);
    ASSERT_EQ(batch.tokens.size(), static_cast<size_t>(3 * length));
    for (int64_t row = 0; row < 3; ++row) {
      for (int64_t s = 0; s < length; ++s) {
        const int64_t i = row * length + s;
        EXPECT_GE(batch.tokens[i], 0);
        EXPECT_LT(batch.tokens[i], 50);
        EXPECT_GE(batch.targets[i], 0);
        EXPECT_LT(batch.targets[i], 50);
        if (s + 1 < length) {
          EXPECT_EQ(batch.targets[i], batch.tokens[i + 1]);
        }
        EXPECT_EQ(batch.target_weights[i], 1);
        EXPECT_EQ(batch.positions[i], s);
        EXPECT_EQ(batch.segments[i], 1);
      }
    }
  }
}

TEST(SyntheticDataset, IsUniform) {
  SyntheticDataset data(config_of(10000, 1), 10);
  std::vector<int> counts(10);
  for (int32_t token : data.next(0, 1).tokens) ++counts[token];
  for (int count : counts) EXPECT_NEAR(count, 1000, 150);  // five deviations
}

TEST(SyntheticDataset, ARowDependsOnlyOnItsNumber) {
  SyntheticDataset whole(config_of(9, 5), 100), parts(config_of(9, 5), 100);
  std::set<std::vector<int32_t>> different;
  for (int step = 0; step < 4; ++step) {
    const Batch all = whole.next(0, 5);
    const Batch part = parts.next(step, 1);
    EXPECT_EQ(part.tokens, std::vector<int32_t>(all.tokens.begin() + step * 9,
                                                all.tokens.begin() + step * 9 + 9));
    for (int row = 0; row < 5; ++row) {
      different.insert({all.tokens.begin() + row * 9, all.tokens.begin() + row * 9 + 9});
    }
  }
  EXPECT_EQ(different.size(), 20u);
  DataConfig other = config_of(9, 5);
  other.shuffle_seed = 1;
  EXPECT_NE(SyntheticDataset(other, 100).next(0, 5).tokens,
            SyntheticDataset(config_of(9, 5), 100).next(0, 5).tokens);
  EXPECT_THROW(whole.next(3, 3), std::logic_error);
}

TEST(SyntheticDataset, PackingCutsRowsIntoSegmentsWithoutNewPositions) {
  for (int64_t length : {1, 2, 3, 40}) {
    DataConfig config = config_of(length, 50);
    config.max_segments_per_row = 4;
    SyntheticDataset data(config, 10);
    const Batch batch = data.next(0, 50);
    std::set<int32_t> counts;
    for (int64_t row = 0; row < 50; ++row) {
      EXPECT_EQ(batch.segments[row * length], 1);
      for (int64_t s = 1; s < length; ++s) {
        const int32_t step =
            batch.segments[row * length + s] - batch.segments[row * length + s - 1];
        EXPECT_TRUE(step == 0 || step == 1);
        EXPECT_EQ(batch.positions[row * length + s], s);
        EXPECT_EQ(batch.target_weights[row * length + s], 1);
      }
      counts.insert(batch.segments[row * length + length - 1]);
    }
    const std::set<int32_t> expected = length == 1   ? std::set<int32_t>{1}
                                       : length == 2 ? std::set<int32_t>{2}
                                       : length == 3 ? std::set<int32_t>{2, 3}
                                                     : std::set<int32_t>{2, 3, 4};
    EXPECT_EQ(counts, expected) << length;
    config.packing = false;
    EXPECT_EQ(SyntheticDataset(config, 10).next(0, 1).segments, std::vector<int32_t>(length, 1));
  }
}

TEST(SyntheticDataset, ReuseRepeatsTheFirstStep) {
  DataConfig config = config_of(8, 2);
  config.reuse_example_batch = 1;
  SyntheticDataset one(config, 100);
  const Batch first = one.next(0, 2);
  EXPECT_EQ(one.next(0, 2).tokens, first.tokens);
  config.gradient_accumulation_steps = 2;
  SyntheticDataset two(config, 100);
  EXPECT_EQ(two.next(0, 2).tokens, first.tokens);
  const Batch second = two.next(0, 2);
  EXPECT_NE(second.tokens, first.tokens);
  EXPECT_EQ(two.next(0, 2).tokens, first.tokens);
  EXPECT_EQ(two.next(0, 2).tokens, second.tokens);
}

TEST(MakeDataset, MakesSyntheticRows) {
  const auto data = make_dataset(config_of(4, 1), 7);
  EXPECT_EQ(data->describe(), "synthetic: uniform random tokens below 7, 1 segment a row");
  EXPECT_EQ(data->next(0, 1).tokens, SyntheticDataset(config_of(4, 1), 7).next(0, 1).tokens);
  EXPECT_EQ(data->next(0, 0).rows, 0);
}

}  // namespace
}  // namespace odyssey
