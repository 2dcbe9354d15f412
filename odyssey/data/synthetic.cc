// SPDX-License-Identifier: Apache-2.0
#include "odyssey/data/synthetic.h"

#include <algorithm>
#include <set>

#include "odyssey/base/error.h"
#include "odyssey/base/random.h"

namespace odyssey {
namespace {

// Streams of random numbers that nothing else draws from, whatever seeds are equal.
constexpr uint64_t kTokenStream = 0x73796e7468000000;  // "synth"
constexpr uint64_t kSegmentStream = kTokenStream + 1;

}  // namespace

SyntheticDataset::SyntheticDataset(const DataConfig& config, int64_t vocabulary)
    : config_(config), vocabulary_(vocabulary) {}

Batch SyntheticDataset::next(int64_t first_row, int64_t rows) {
  const int64_t all_rows = config_.global_batch_rows;
  ODYSSEY_CHECK(first_row >= 0 && rows >= 0 && first_row + rows <= all_rows, "rows [{}, {}) of {}",
                first_row, first_row + rows, all_rows);
  const int64_t length = config_.sequence_length;
  const Random random(config_.shuffle_seed, kTokenStream);
  Batch batch = padded_batch(rows, length);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t stream_row = micro_batch_ * all_rows + first_row + row;
    const auto token = [&](int64_t s) {
      return static_cast<int32_t>(
          random.integer(static_cast<uint64_t>(stream_row * (length + 1) + s),
                         static_cast<uint64_t>(vocabulary_)));
    };
    int32_t current = token(0);
    for (int64_t s = 0; s < length; ++s) {
      const int64_t i = row * length + s;
      batch.tokens[i] = current;
      current = token(s + 1);
      batch.targets[i] = current;
      batch.target_weights[i] = 1;
      batch.positions[i] = static_cast<int32_t>(s);
    }
    fill_segments(stream_row, batch.segments.data() + row * length);
  }
  ++micro_batch_;
  if (config_.reuse_example_batch > 0) micro_batch_ %= config_.gradient_accumulation_steps;
  return batch;
}

void SyntheticDataset::fill_segments(int64_t stream_row, int32_t* segments) const {
  const int64_t length = config_.sequence_length;
  std::set<int64_t> cuts;  // first tokens of the segments 2, 3, ...
  if (has_segments() && length >= 2) {
    const int64_t most = std::min(config_.max_segments_per_row, length);
    const Random random(config_.shuffle_seed, kSegmentStream);
    const auto draw = [&](int64_t item, int64_t bound) {  // in [0, bound)
      return static_cast<int64_t>(random.integer(static_cast<uint64_t>(stream_row * length + item),
                                                 static_cast<uint64_t>(bound)));
    };
    const int64_t cut_count = 1 + draw(0, most - 1);
    // Floyd's sampling: every set of cut_count different places in [1, S) is equally likely.
    for (int64_t last = length - cut_count; last < length; ++last) {
      const int64_t place = 1 + draw(last, last);
      cuts.insert(cuts.contains(place) ? last : place);
    }
  }
  int32_t segment = 1;
  auto cut = cuts.begin();
  for (int64_t s = 0; s < length; ++s) {
    if (cut != cuts.end() && *cut == s) {
      ++segment;
      ++cut;
    }
    segments[s] = segment;
  }
}

std::string SyntheticDataset::describe() const {
  return fmt::format(
      "synthetic: uniform random tokens below {}, {} a row", vocabulary_,
      has_segments() ? fmt::format("2 to {} segments", config_.max_segments_per_row) : "1 segment");
}

}  // namespace odyssey
