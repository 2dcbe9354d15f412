// SPDX-License-Identifier: Apache-2.0
#include "odyssey/sequence/needed_rows.h"

#include <algorithm>

namespace odyssey {
namespace {

Bounds bounds_of(const Run& run) {
  return {run.first, run.first + (run.count - 1) * run.stride};
}

// The rows of `keys` with positions in `bounds`.
RowRange rows_within(const Run& keys, Bounds bounds) {
  const auto rows_before = [&](int64_t position) {
    if (position <= keys.first) return int64_t{0};
    return std::min(keys.count, (position - keys.first + keys.stride - 1) / keys.stride);
  };
  const int64_t begin = rows_before(bounds.least), end = rows_before(bounds.most + 1);
  return {begin, std::max<int64_t>(0, end - begin)};
}

// The queries of a run see neighbouring intervals of keys. Whether these touch each other, so that
// the run sees one interval.
bool sees_one_interval(const Run& queries, MaskKind kind, int64_t window) {
  switch (kind) {
    case MaskKind::kCausal:
    case MaskKind::kFull:
      return true;
    case MaskKind::kLocalSliding:
      return queries.stride <= window;
    case MaskKind::kChunk:
      return queries.stride == 1;
  }
  return false;
}

// The masks that leave holes look back only, so a key is seen if the first query at or after it
// sees it: later ones are farther away.
bool is_seen(const Run& queries, int64_t key, MaskKind kind, int64_t window) {
  const int64_t steps =
      key <= queries.first ? 0 : (key - queries.first + queries.stride - 1) / queries.stride;
  return steps < queries.count &&
         visible(kind, window, queries.first + steps * queries.stride, key);
}

void add_range(RowRange range, std::vector<RowRange>& ranges) {
  if (range.count == 0) return;
  if (!ranges.empty() && range.begin <= ranges.back().begin + ranges.back().count) {
    RowRange& last = ranges.back();
    last.count = std::max(last.begin + last.count, range.begin + range.count) - last.begin;
  } else {
    ranges.push_back(range);
  }
}

// Rows of one run of keys, counted from its first.
void add_needed(const Run& queries, const Run& keys, MaskKind kind, int64_t window,
                std::vector<RowRange>& ranges) {
  if (queries.count == 0 || keys.count == 0) return;
  if (classify(kind, window, bounds_of(queries), bounds_of(keys)) == Visibility::kHidden) return;
  const RowRange hull =
      rows_within(keys, {visible_keys(kind, window, bounds_of(queries).least).least,
                         visible_keys(kind, window, bounds_of(queries).most).most});
  if (sees_one_interval(queries, kind, window)) {
    if (hull.count > 0) ranges.push_back(hull);
    return;
  }
  std::vector<RowRange> found;
  for (int64_t row = hull.begin; row < hull.begin + hull.count; ++row) {
    if (is_seen(queries, keys.first + row * keys.stride, kind, window)) add_range({row, 1}, found);
  }
  ranges.insert(ranges.end(), found.begin(), found.end());
}

}  // namespace

std::vector<RowRange> needed_rows(std::span<const SegmentRun> queries,
                                  std::span<const SegmentRun> keys, MaskKind kind, int64_t window) {
  const std::vector<SegmentRun> sorted = sorted_by_segment(queries);
  std::vector<RowRange> all, of_run;
  for (const SegmentRun& key : keys) {
    of_run.clear();
    for (const SegmentRun& query : of_segment(sorted, key.segment)) {
      add_needed(query.run, key.run, kind, window, of_run);
    }
    std::sort(of_run.begin(), of_run.end(),
              [](const RowRange& a, const RowRange& b) { return a.begin < b.begin; });
    for (const RowRange& range : of_run) add_range({key.first_row + range.begin, range.count}, all);
  }
  return all;
}

std::vector<RowRange> united(const std::vector<RowRange>& a, const std::vector<RowRange>& b) {
  std::vector<RowRange> sorted(a.size() + b.size()), all;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), sorted.begin(),
             [](const RowRange& x, const RowRange& y) { return x.begin < y.begin; });
  for (const RowRange& range : sorted) add_range(range, all);
  return all;
}

int64_t count_rows(std::span<const RowRange> ranges) {
  int64_t rows = 0;
  for (const RowRange& range : ranges) rows += range.count;
  return rows;
}

std::vector<Run> runs_of(std::span<const Run> block, std::span<const RowRange> ranges) {
  std::vector<Run> runs;
  int64_t first_row = 0;
  auto range = ranges.begin();
  for (const Run& run : block) {
    // A range may go on in the next run, so it is left only when it ends here.
    while (range != ranges.end() && range->begin < first_row + run.count) {
      const int64_t begin = std::max<int64_t>(0, range->begin - first_row);
      const int64_t end = std::min(run.count, range->begin + range->count - first_row);
      if (end > begin) runs.push_back({run.first + begin * run.stride, end - begin, run.stride});
      if (range->begin + range->count > first_row + run.count) break;
      ++range;
    }
    first_row += run.count;
  }
  return runs;
}

}  // namespace odyssey
