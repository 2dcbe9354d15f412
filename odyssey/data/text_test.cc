// SPDX-License-Identifier: Apache-2.0
// Rows made of text: what stands where, and that nothing is lost on the way.
#include "odyssey/data/text.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "odyssey/base/error.h"
#include "odyssey/base/random.h"
#include "odyssey/data/dataset.h"
#include "odyssey/io/test_folder.h"

namespace odyssey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

DataConfig config_of(const std::string& path, int64_t length, int64_t rows) {
  DataConfig config;
  config.type = DatasetType::kText;
  config.text_path = path;
  config.sequence_length = length;
  config.global_batch_rows = rows;
  config.shuffle = false;
  return config;
}

int64_t sum(const std::vector<int32_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

TEST(TextDataset, ShiftsOnceOnTheWholeRow) {
  const TestFolder folder;
  TextDataset data(config_of(folder.write("f", "\1\2\3\4\5\6\7\10"), 8, 1), 256);
  const Batch batch = data.next(0, 1);
  EXPECT_THAT(batch.tokens, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(batch.targets, ElementsAre(2, 3, 4, 5, 6, 7, 8, 0));
  EXPECT_EQ(sum(batch.target_weights), 7);
  EXPECT_EQ(sum(batch.targets), 35);
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(TextDataset, TheLastByteOfADocumentHasNoTarget) {
  const TestFolder folder;
  folder.write("a", "\1\2\3");
  folder.write("b", "\4\5\6\7\10");
  TextDataset data(config_of(folder.path(), 8, 1), 256);
  const Batch batch = data.next(0, 1);
  EXPECT_THAT(batch.targets, ElementsAre(2, 3, 0, 5, 6, 7, 8, 0));
  EXPECT_THAT(batch.target_weights, ElementsAre(1, 1, 0, 1, 1, 1, 1, 0));
  EXPECT_THAT(batch.segments, ElementsAre(1, 1, 1, 2, 2, 2, 2, 2));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 0, 1, 2, 3, 4));
}

TEST(TextDataset, ATargetMayLieInTheNextRow) {
  const TestFolder folder;
  folder.write("a", "ab");
  folder.write("b", "cdefg");
  TextDataset data(config_of(folder.path(), 3, 3), 256);
  const Batch batch = data.next(0, 3);
  EXPECT_THAT(batch.tokens, ElementsAre('a', 'b', 'c', 'd', 'e', 'f', 'g', 'a', 'b'));
  EXPECT_THAT(batch.targets, ElementsAre('b', 0, 'd', 'e', 'f', 'g', 0, 'b', 0));
  EXPECT_THAT(batch.segments, ElementsAre(1, 1, 2, 1, 1, 1, 1, 2, 2));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 0, 0, 1, 2, 0, 0, 1));
}

TEST(TextDataset, WithoutPackingARowHoldsOneDocument) {
  const TestFolder folder;
  folder.write("a", "ab");
  folder.write("b", "cdefg");
  DataConfig config = config_of(folder.path(), 4, 3);
  config.packing = false;
  TextDataset data(config, 256);
  const Batch batch = data.next(0, 3);
  EXPECT_THAT(batch.tokens, ElementsAre('a', 'b', 0, 0, 'c', 'd', 'e', 'f', 'g', 0, 0, 0));
  EXPECT_THAT(batch.targets, ElementsAre('b', 0, 0, 0, 'd', 'e', 'f', 'g', 0, 0, 0, 0));
  EXPECT_THAT(batch.target_weights, ElementsAre(1, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0));
  EXPECT_THAT(batch.segments, ElementsAre(1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0));
}

TEST(TextDataset, FewRealTokensInALongRow) {
  const TestFolder folder;
  DataConfig config = config_of(folder.write("f", "abcde"), 16, 1);
  config.packing = false;
  const Batch batch = TextDataset(config, 256).next(0, 1);
  EXPECT_EQ(sum(batch.target_weights), 4);
  EXPECT_EQ(sum(batch.segments), 5);
}

TEST(TextDataset, SegmentsPerRowAreLimited) {
  const TestFolder folder;
  for (const char* name : {"a", "b", "c"}) folder.write(name, "xy");
  DataConfig config = config_of(folder.path(), 8, 1);
  config.max_segments_per_row = 3;
  const Batch batch = TextDataset(config, 256).next(0, 1);
  EXPECT_THAT(batch.segments, ElementsAre(1, 1, 2, 2, 3, 3, 0, 0));
}

TEST(TextDataset, BytesAbove127AreTokensToo) {
  const TestFolder folder;
  const Batch batch =
      TextDataset(config_of(folder.write("f", "\xff\x80\x01"), 2, 1), 256).next(0, 1);
  EXPECT_THAT(batch.tokens, ElementsAre(255, 128));
  EXPECT_THAT(batch.targets, ElementsAre(128, 1));
}

// Random documents of different bytes, so a byte names its document and place.
TEST(TextDataset, AnEpochHoldsEveryByteOnceWithItsSuccessor) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const Random random(seed, 5);
    const TestFolder folder;
    const int64_t documents = 1 + static_cast<int64_t>(random.integer(0, 8));
    int64_t bytes = 0, targets = 0;
    for (int64_t d = 0; d < documents; ++d) {
      std::string text(1 + random.integer(10 + d, d == 0 ? 25 : 9), ' ');
      if (d == 0) text += ' ';  // one with a target at least
      for (char& c : text) c = static_cast<char>(1 + bytes++);
      targets += static_cast<int64_t>(text.size()) - 1;
      folder.write(fmt::format("{:02}", d), text);
    }
    const int64_t length = 1 + static_cast<int64_t>(random.integer(1, 8));
    DataConfig config =
        config_of(folder.path(), length, 1 + static_cast<int64_t>(random.integer(2, 3)));
    config.shuffle = true;
    config.shuffle_seed = seed;
    config.packing = seed % 3 != 0;
    config.max_segments_per_row = static_cast<int64_t>(random.integer(3, 4)) - 1;
    TextDataset data(config, 256);

    std::vector<int> seen(static_cast<size_t>(bytes + 1));
    int64_t left = bytes, found_targets = 0;
    while (left > 0) {
      const Batch batch = data.next(0, config.global_batch_rows);
      for (size_t i = 0; i < batch.tokens.size() && left > 0; ++i) {
        if (batch.segments[i] == 0) {
          EXPECT_EQ(
              batch.tokens[i] + batch.targets[i] + batch.target_weights[i] + batch.positions[i], 0);
          continue;
        }
        --left;
        ++seen[batch.tokens[i]];
        if (batch.target_weights[i] == 1) {
          EXPECT_EQ(batch.targets[i], batch.tokens[i] + 1);
        }
        found_targets += batch.target_weights[i];
        const bool same_segment = i % length != 0 && batch.segments[i - 1] == batch.segments[i];
        if (same_segment) {
          EXPECT_EQ(batch.positions[i], batch.positions[i - 1] + 1);
          EXPECT_EQ(batch.targets[i - 1], batch.tokens[i]);
        } else if (i % length != 0) {
          EXPECT_EQ(batch.segments[i], batch.segments[i - 1] + 1);
        } else {
          EXPECT_EQ(batch.segments[i], 1);
        }
      }
    }
    EXPECT_EQ(found_targets, targets);
    for (int64_t b = 1; b <= bytes; ++b) EXPECT_EQ(seen[b], 1) << b;
  }
}

TEST(TextDataset, RowsAskedInPartsAreTheRowsAskedAtOnce) {
  const TestFolder folder;
  folder.write("a", "a first document of some length");
  folder.write("b", "b");
  folder.write("c", "and a third");
  DataConfig config = config_of(folder.path(), 7, 5);
  config.shuffle = true;
  TextDataset whole(config, 256), head(config, 256), tail(config, 256), skipping(config, 256);
  for (int step = 0; step < 6; ++step) {
    const Batch all = whole.next(0, 5);
    const Batch first = head.next(0, 2), rest = tail.next(2, 3);
    for (auto member : {&Batch::tokens, &Batch::targets, &Batch::target_weights, &Batch::positions,
                        &Batch::segments}) {
      std::vector<int32_t> joined = first.*member;
      joined.insert(joined.end(), (rest.*member).begin(), (rest.*member).end());
      EXPECT_EQ(joined, all.*member);
    }
    if (step < 5) {
      EXPECT_EQ(skipping.next(0, 0).rows, 0);
    } else {
      EXPECT_EQ(skipping.next(0, 5).tokens, all.tokens);
    }
  }
  EXPECT_THROW(whole.next(4, 2), std::logic_error);
  EXPECT_THROW(whole.next(-1, 2), std::logic_error);
}

TEST(TextDataset, ReuseRepeatsTheFirstStep) {
  const TestFolder folder;
  DataConfig config = config_of(folder.write("f", "abcdefghij"), 3, 1);
  config.reuse_example_batch = 1;
  config.gradient_accumulation_steps = 2;
  TextDataset data(config, 256);
  for (int step = 0; step < 3; ++step) {
    EXPECT_THAT(data.next(0, 1).tokens, ElementsAre('a', 'b', 'c'));
    EXPECT_THAT(data.next(0, 1).tokens, ElementsAre('d', 'e', 'f'));
  }
}

TEST(MakeDataset, MakesRowsOfText) {
  const TestFolder folder;
  folder.write("a", "text");
  folder.write("b", std::string(1, '\0'));
  const DataConfig config = config_of(folder.path(), 4, 1);
  EXPECT_EQ(make_dataset(config, 256)->describe(),
            "text: 1 files, 1 documents, 4 bytes; skipped 1 binary");
  try {
    make_dataset(config, 255);
    ADD_FAILURE() << "a vocabulary of 255 was accepted";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("at least 256"));
    EXPECT_THAT(error.what(), HasSubstr("255"));
  }
}

}  // namespace
}  // namespace odyssey
