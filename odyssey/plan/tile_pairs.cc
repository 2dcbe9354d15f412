// SPDX-License-Identifier: Apache-2.0
#include "odyssey/plan/tile_pairs.h"

#include <algorithm>
#include <limits>

#include "odyssey/sequence/needed_rows.h"

namespace odyssey {
namespace {

constexpr int64_t kTileKeys = 64;  // of all kernels here

// Rows of a run with positions in [least, most], as storage rows [begin, end) of the run.
struct RowSpan {
  int64_t begin, end;
};
RowSpan rows_within(const Run& run, Bounds seen) {
  const auto first_at_least = [&](int64_t position) {
    return std::clamp((position - run.first + run.stride - 1) / run.stride, int64_t{0}, run.count);
  };
  const int64_t begin = seen.least <= run.first ? 0 : first_at_least(seen.least);
  const int64_t end = seen.most < run.first ? 0 : first_at_least(seen.most + 1);
  return {begin, std::max(begin, end)};
}

}  // namespace

int64_t visible_tile_pairs(std::span<const Run> queries, std::span<const Run> keys, MaskKind kind,
                           int64_t window, int64_t query_tile) {
  const int64_t key_rows = count_rows(keys);
  int64_t pairs = 0;
  // Query tiles go over the ends of runs, as the kernel's do.
  int64_t in_tile = 0, least = std::numeric_limits<int64_t>::max(), most = -1;
  const auto close_tile = [&] {
    const Bounds seen{visible_keys(kind, window, least).least,
                      visible_keys(kind, window, most).most};
    int64_t begin = 0, last_tile = -1, rows = 0;
    for (const Run& run : keys) {
      const RowSpan span = rows_within(run, seen);
      if (span.end > span.begin) {
        const int64_t first = std::max((begin + span.begin) / kTileKeys, last_tile + 1);
        last_tile = (begin + span.end - 1) / kTileKeys;
        rows +=
            std::min((last_tile + 1) * kTileKeys, key_rows) - std::min(first * kTileKeys, key_rows);
      }
      begin += run.count;
    }
    pairs += in_tile * rows;
    in_tile = 0;
    least = std::numeric_limits<int64_t>::max();
    most = -1;
  };
  for (const Run& run : queries) {
    for (int64_t row = 0; row < run.count;) {
      const int64_t taken = std::min(query_tile - in_tile, run.count - row);
      least = std::min(least, run.first + row * run.stride);
      most = std::max(most, run.first + (row + taken - 1) * run.stride);
      in_tile += taken;
      row += taken;
      if (in_tile == query_tile) close_tile();
    }
  }
  if (in_tile > 0) close_tile();
  return pairs;
}

}  // namespace odyssey
