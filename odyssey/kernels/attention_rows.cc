// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/attention_rows.h"

#include <algorithm>
#include <limits>

#include "odyssey/base/error.h"

namespace odyssey {
namespace {

template <class T>
void reserve(Buffer<T>& buffer, int64_t size) {
  if (buffer.size() < size) buffer = Buffer<T>(size);
}

void fill_segments(const BlockRows& rows, int64_t count, int32_t* out) {
  if (rows.segments.empty()) {
    std::fill(out, out + count, 1);
    return;
  }
  ODYSSEY_CHECK(static_cast<int64_t>(rows.segments.size()) == count, "{} segment ids for {} rows",
                rows.segments.size(), count);
  std::copy(rows.segments.begin(), rows.segments.end(), out);
}

int32_t narrow(int64_t position) {
  return static_cast<int32_t>(
      std::clamp<int64_t>(position, -1, std::numeric_limits<int32_t>::max()));
}

}  // namespace

void AttentionRows::fill(const BlockMask& mask, int64_t query_tile, int64_t key_tile) {
  query_tile_ = query_tile;
  key_tile_ = key_tile;
  queries_ = count_rows(mask.queries.runs);
  keys_ = count_rows(mask.keys.runs);
  reserve(least_, queries_);
  reserve(most_, queries_);
  reserve(query_segment_, queries_);
  reserve(position_, keys_);
  reserve(key_segment_, keys_);
  int64_t row = 0;
  for (const Run& run : mask.queries.runs) {
    for (int64_t i = 0; i < run.count; ++i, ++row) {
      const Bounds keys = visible_keys(mask.kind, mask.window, run.first + i * run.stride);
      least_[row] = narrow(keys.least);
      most_[row] = narrow(keys.most);
    }
  }
  row = 0;
  for (const Run& run : mask.keys.runs) {
    const int64_t last = run.first + (run.count - 1) * run.stride;
    ODYSSEY_CHECK(last < std::numeric_limits<int32_t>::max(), "position {} needs more than 31 bits",
                  last);
    for (int64_t i = 0; i < run.count; ++i, ++row) {
      position_[row] = static_cast<int32_t>(run.first + i * run.stride);
    }
  }
  fill_segments(mask.queries, queries_, query_segment_.data());
  fill_segments(mask.keys, keys_, key_segment_.data());

  const int64_t query_tiles = (queries_ + query_tile - 1) / query_tile;
  const int64_t key_tiles = (keys_ + key_tile - 1) / key_tile;
  reserve(query_tiles_, query_tiles);
  reserve(key_tiles_, key_tiles);
  const auto bounds = [](const int32_t* values, int64_t begin, int64_t end) {
    const auto [least, most] = std::minmax_element(values + begin, values + end);
    return std::pair<int32_t, int32_t>(*least, *most);
  };
  const auto ascending = [](const int32_t* values, int64_t begin, int64_t end) {
    return std::is_sorted(values + begin, values + end);
  };
  for (int64_t t = 0; t < query_tiles; ++t) {
    const int64_t begin = t * query_tile, end = std::min(begin + query_tile, queries_);
    const auto [lower, lower_most] = bounds(least_.data(), begin, end);
    const auto [upper_least, upper] = bounds(most_.data(), begin, end);
    const auto [segment, segment_most] = bounds(query_segment_.data(), begin, end);
    query_tiles_[t] = {lower,
                       lower_most,
                       upper_least,
                       upper,
                       segment,
                       segment_most,
                       ascending(query_segment_.data(), begin, end)};
  }
  for (int64_t t = 0; t < key_tiles; ++t) {
    const int64_t begin = t * key_tile, end = std::min(begin + key_tile, keys_);
    const auto [position, position_most] = bounds(position_.data(), begin, end);
    const auto [segment, segment_most] = bounds(key_segment_.data(), begin, end);
    key_tiles_[t] = {position,
                     position_most,
                     0,
                     0,
                     segment,
                     segment_most,
                     ascending(key_segment_.data(), begin, end)};
  }
}

// Many short documents: the ranges of ids of two tiles may overlap though no id is in both.
bool AttentionRows::share_a_segment(int64_t qt, int64_t kt) const {
  if (!query_tiles_[qt].ascending || !key_tiles_[kt].ascending) return true;  // not worth a search
  int64_t q = qt * query_tile_, k = kt * key_tile_;
  const int64_t q_end = std::min(q + query_tile_, queries_);
  const int64_t k_end = std::min(k + key_tile_, keys_);
  while (q < q_end && k < k_end) {
    const int32_t of_query = query_segment_[q], of_key = key_segment_[k];
    if (of_query == of_key && of_query != 0) return true;
    if (of_query <= of_key) {
      ++q;
    } else {
      ++k;
    }
  }
  return false;
}

Visibility AttentionRows::tile(int64_t qt, int64_t kt) const {
  const TileBounds& q = query_tiles_[qt];
  const TileBounds& k = key_tiles_[kt];
  if (k.most < q.least || k.least > q.other_most) return Visibility::kHidden;
  const Visibility same =
      classify_segments({q.segment_least, q.segment_most}, {k.segment_least, k.segment_most});
  if (same == Visibility::kPartial && !share_a_segment(qt, kt)) return Visibility::kHidden;
  if (same != Visibility::kFull) return same;
  const bool all = k.least >= q.most && k.most <= q.other_least;
  return all ? Visibility::kFull : Visibility::kPartial;
}

}  // namespace odyssey
