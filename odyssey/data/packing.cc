// SPDX-License-Identifier: Apache-2.0
#include "odyssey/data/packing.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "odyssey/base/error.h"
#include "odyssey/base/random.h"

namespace odyssey {
namespace {

// Streams of random numbers that nothing else draws from; the epoch is added.
constexpr uint64_t kOrderStream = 0x6f72646572000000;  // "order"

}  // namespace

RowPlanner::RowPlanner(std::vector<int64_t> lengths, PackingRule rule)
    : lengths_(std::move(lengths)), rule_(rule), order_(lengths_.size()) {
  ODYSSEY_CHECK(!lengths_.empty() && rule_.row_length >= 1, "{} documents, rows of {}",
                lengths_.size(), rule_.row_length);
  for (int64_t length : lengths_) ODYSSEY_CHECK(length >= 1, "a document of {} bytes", length);
  begin_epoch(0);
}

void RowPlanner::restart() {
  visited_ = 0;
  offset_ = 0;
  if (epoch_ != 0) begin_epoch(0);
}

void RowPlanner::begin_epoch(int64_t epoch) {
  epoch_ = epoch;
  std::iota(order_.begin(), order_.end(), int64_t{0});
  if (!rule_.shuffle) return;
  const Random random(rule_.seed, kOrderStream + static_cast<uint64_t>(epoch));
  for (uint64_t i = order_.size(); i > 1; --i) {  // Fisher and Yates
    std::swap(order_[i - 1], order_[random.integer(i, i)]);
  }
}

void RowPlanner::next_row(std::vector<Piece>& row) {
  row.clear();
  int64_t room = rule_.row_length;
  while (room > 0 && (rule_.segments_per_row < 1 ||
                      static_cast<int64_t>(row.size()) < rule_.segments_per_row)) {
    const int64_t document = order_[visited_];
    const int64_t length = std::min(room, lengths_[document] - offset_);
    row.push_back({document, offset_, length});
    room -= length;
    offset_ += length;
    if (offset_ < lengths_[document]) continue;
    offset_ = 0;
    if (++visited_ == static_cast<int64_t>(order_.size())) {
      visited_ = 0;
      begin_epoch(epoch_ + 1);
    }
  }
}

}  // namespace odyssey
