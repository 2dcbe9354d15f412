// SPDX-License-Identifier: Apache-2.0
// The plan of rows alone, on random document lengths.
#include "odyssey/data/packing.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "odyssey/base/random.h"

namespace odyssey {
namespace {

using ::testing::ElementsAre;

std::vector<std::vector<Piece>> rows_of(RowPlanner& planner, int64_t count) {
  std::vector<std::vector<Piece>> rows(static_cast<size_t>(count));
  for (auto& row : rows) planner.next_row(row);
  return rows;
}

TEST(RowPlanner, CutsADocumentAtTheRowsEndAndGoesOn) {
  RowPlanner planner({3, 5, 9}, {.row_length = 4, .shuffle = false});
  const auto rows = rows_of(planner, 6);
  EXPECT_THAT(rows[0], ElementsAre(Piece{0, 0, 3}, Piece{1, 0, 1}));
  EXPECT_THAT(rows[1], ElementsAre(Piece{1, 1, 4}));
  EXPECT_THAT(rows[2], ElementsAre(Piece{2, 0, 4}));
  EXPECT_THAT(rows[3], ElementsAre(Piece{2, 4, 4}));
  EXPECT_THAT(rows[4], ElementsAre(Piece{2, 8, 1}, Piece{0, 0, 3}));  // the next epoch
  EXPECT_THAT(rows[5], ElementsAre(Piece{1, 0, 4}));
}

TEST(RowPlanner, OneSegmentARowLeavesTheRestEmpty) {
  RowPlanner planner({3, 5}, {.row_length = 4, .segments_per_row = 1, .shuffle = false});
  const auto rows = rows_of(planner, 4);
  EXPECT_THAT(rows[0], ElementsAre(Piece{0, 0, 3}));
  EXPECT_THAT(rows[1], ElementsAre(Piece{1, 0, 4}));
  EXPECT_THAT(rows[2], ElementsAre(Piece{1, 4, 1}));
  EXPECT_THAT(rows[3], ElementsAre(Piece{0, 0, 3}));
}

TEST(RowPlanner, ADocumentThatFitsExactlyIsNotCut) {
  RowPlanner planner({4}, {.row_length = 4});
  for (const auto& row : rows_of(planner, 3)) EXPECT_THAT(row, ElementsAre(Piece{0, 0, 4}));
}

// Whatever the lengths: the pieces, one after the other, are the documents, whole and in order;
// each epoch has each document once; rows are as full as the rule lets them be.
TEST(RowPlanner, NoByteIsLostOrRepeated) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const Random random(seed, 77);
    const auto draw = [&](uint64_t i, int64_t least, int64_t most) {
      return least +
             static_cast<int64_t>(random.integer(i, static_cast<uint64_t>(most - least + 1)));
    };
    const int64_t documents = draw(0, 1, 12);
    std::vector<int64_t> lengths;
    for (int64_t d = 0; d < documents; ++d)
      lengths.push_back(draw(100 + d, 1, d % 3 == 0 ? 40 : 4));
    const PackingRule rule{.row_length = draw(1, 1, 9),
                           .segments_per_row = draw(2, -1, 4),
                           .shuffle = seed % 4 != 0,
                           .seed = seed};
    RowPlanner planner(lengths, rule);
    const auto rows = rows_of(planner, 200);
    std::set<int64_t> in_epoch;
    Piece last{-1, 0, 0};
    for (const auto& row : rows) {
      int64_t used = 0;
      for (const Piece& piece : row) {
        const bool goes_on =
            last.document >= 0 && last.begin + last.length < lengths[last.document];
        if (goes_on) {
          EXPECT_EQ(piece.document, last.document);
          EXPECT_EQ(piece.begin, last.begin + last.length);
        } else {
          EXPECT_EQ(piece.begin, 0);
          if (static_cast<int64_t>(in_epoch.size()) == documents) in_epoch.clear();
          EXPECT_TRUE(in_epoch.insert(piece.document).second);
        }
        EXPECT_GE(piece.length, 1);
        used += piece.length;
        last = piece;
      }
      EXPECT_LE(used, rule.row_length);
      if (rule.segments_per_row < 1) {
        EXPECT_EQ(used, rule.row_length);
      } else {
        EXPECT_LE(static_cast<int64_t>(row.size()), rule.segments_per_row);
        EXPECT_TRUE(used == rule.row_length ||
                    static_cast<int64_t>(row.size()) == rule.segments_per_row);
      }
    }
  }
}

TEST(RowPlanner, EveryEpochAndSeedHasAnOrderOfItsOwn) {
  const std::vector<int64_t> lengths(50, 2);
  const auto epochs = [&](uint64_t seed) {
    RowPlanner planner(lengths, {.row_length = 100, .seed = seed});
    return rows_of(planner, 3);
  };
  const auto first = epochs(1);
  EXPECT_EQ(first, epochs(1));
  EXPECT_NE(first[0], first[1]);
  EXPECT_NE(first[1], first[2]);
  EXPECT_NE(first[0], epochs(2)[0]);
  std::vector<int64_t> order;
  for (const Piece& piece : first[0]) order.push_back(piece.document);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
}

TEST(RowPlanner, RestartsFromTheFirstRow) {
  RowPlanner planner({3, 1, 7, 2}, {.row_length = 5, .seed = 9});
  const auto rows = rows_of(planner, 20);
  planner.restart();
  EXPECT_EQ(rows_of(planner, 20), rows);
}

}  // namespace
}  // namespace odyssey
