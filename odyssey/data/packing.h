// SPDX-License-Identifier: Apache-2.0
// RowPlanner: which piece of which document goes into which row. It knows only lengths, so every
// rank walks the same plan at no cost and reads only the rows it needs.
//
// Documents are visited in a random order, a new one each epoch, without end. A row takes document
// after document; one that does not fit is cut at the row's end and goes on at the start of the
// next row. So each byte of an epoch appears exactly once.
#pragma once
#include <cstdint>
#include <vector>

namespace odyssey {

// Bytes [begin, begin + length) of a document: one segment of a row.
struct Piece {
  int64_t document = 0;
  int64_t begin = 0;
  int64_t length = 0;
  bool operator==(const Piece&) const = default;
};

struct PackingRule {
  int64_t row_length = 0;         // S
  int64_t segments_per_row = -1;  // the rest of a full row is padding; below 1: no limit
  bool shuffle = true;            // else: the given order in every epoch
  uint64_t seed = 0;
};

class RowPlanner {
 public:
  // At least one document; every length is at least 1.
  RowPlanner(std::vector<int64_t> lengths, PackingRule rule);

  // Replaces `row` by the pieces of the next row, from left to right.
  void next_row(std::vector<Piece>& row);
  // Goes back to the first row.
  void restart();

 private:
  void begin_epoch(int64_t epoch);

  std::vector<int64_t> lengths_;
  PackingRule rule_;
  std::vector<int64_t> order_;  // documents of this epoch
  int64_t epoch_ = -1;
  int64_t visited_ = 0;  // documents of order_ that are used up
  int64_t offset_ = 0;   // bytes of the current one that are used up
};

}  // namespace odyssey
