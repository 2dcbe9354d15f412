// SPDX-License-Identifier: Apache-2.0
#include "odyssey/sequence/block_mask.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "odyssey/base/error.h"
#include "odyssey/sequence/segment_runs.h"

namespace odyssey {
namespace {

std::vector<SegmentRun> cut_by_segment(const BlockRows& rows) {
  std::vector<SegmentRun> pieces;
  int64_t row = 0;
  for (const Run& run : rows.runs) {
    for (int64_t begin = 0; begin < run.count;) {
      int64_t end = run.count;
      int32_t segment = 1;
      if (!rows.segments.empty()) {
        segment = rows.segments[row + begin];
        end = begin + 1;
        while (end < run.count && rows.segments[row + end] == segment) ++end;
      }
      if (segment != 0) {
        pieces.push_back(
            {{run.first + begin * run.stride, end - begin, run.stride}, segment, row + begin});
      }
      begin = end;
    }
    row += run.count;
  }
  return pieces;
}

// How many positions of `run` lie in [least, most].
int64_t count_within(const Run& run, Bounds bounds) {
  const int64_t begin =
      bounds.least <= run.first ? 0 : (bounds.least - run.first + run.stride - 1) / run.stride;
  const int64_t end = bounds.most < run.first ? 0 : (bounds.most - run.first) / run.stride + 1;
  return std::max<int64_t>(0, std::min(end, run.count) - std::min(begin, run.count));
}

// Sum over i < n of floor((a i + b) / m); a, b >= 0, m > 0. Euclid's algorithm on the lattice
// points below a line (Graham, Knuth, Patashnik, Concrete Mathematics, section 3.5).
int64_t floor_sum(int64_t n, int64_t m, int64_t a, int64_t b) {
  int64_t sum = 0;
  while (n > 0) {
    sum += n * (n - 1) / 2 * (a / m) + n * (b / m);
    a %= m;
    b %= m;
    const int64_t most = a * n + b;
    n = most / m;
    b = most % m;
    std::swap(m, a);
  }
  return sum;
}

// Sum over i < n of the positions of `run` that lie before first + i * step.
int64_t sum_before(const Run& run, int64_t first, int64_t step, int64_t n) {
  const auto steps_to = [&](int64_t position) {  // the first i at or after it
    return std::clamp<int64_t>(position <= first ? 0 : (position - first + step - 1) / step, 0, n);
  };
  const int64_t some = steps_to(run.first + 1);
  const int64_t all = std::max(some, steps_to(run.first + (run.count - 1) * run.stride + 1));
  return floor_sum(all - some, run.stride, step, first + some * step - run.first + run.stride - 1) +
         (n - all) * run.count;
}

Bounds bounds_of(const Run& run) {
  return {run.first, run.first + (run.count - 1) * run.stride};
}

}  // namespace

Bounds visible_keys(MaskKind kind, int64_t window, int64_t query) {
  constexpr int64_t kFar = std::numeric_limits<int64_t>::max() / 2;
  switch (kind) {
    case MaskKind::kCausal:
      return {0, query};
    case MaskKind::kFull:
      return {0, kFar};
    case MaskKind::kLocalSliding:
      return {query - window + 1, query};
    case MaskKind::kChunk:
      return {query / window * window, query};
  }
  return {0, -1};
}

std::string_view name_of(MaskKind kind) {
  switch (kind) {
    case MaskKind::kCausal:
      return "causal";
    case MaskKind::kFull:
      return "full";
    case MaskKind::kLocalSliding:
      return "local_sliding";
    case MaskKind::kChunk:
      return "chunk";
  }
  return "?";
}

Visibility classify(MaskKind kind, int64_t window, Bounds query, Bounds key) {
  if (kind == MaskKind::kFull) return Visibility::kFull;
  if (key.least > query.most) return Visibility::kHidden;
  bool all = key.most <= query.least;
  if (kind == MaskKind::kLocalSliding) {
    if (query.least - key.most >= window) return Visibility::kHidden;
    all = all && query.most - key.least < window;
  } else if (kind == MaskKind::kChunk) {
    if (key.most / window < query.least / window) return Visibility::kHidden;
    all = all && key.least / window == query.most / window;
  }
  return all ? Visibility::kFull : Visibility::kPartial;
}

Visibility classify_segments(Bounds query, Bounds key) {
  if (query.most == 0 || key.most == 0) return Visibility::kHidden;  // padding only
  if (query.least > key.most || key.least > query.most) return Visibility::kHidden;
  const bool one = query.least == query.most && key.least == key.most;
  return one ? Visibility::kFull : Visibility::kPartial;
}

int64_t count_rows(std::span<const Run> runs) {
  int64_t rows = 0;
  for (const Run& run : runs) rows += run.count;
  return rows;
}

// Of runs that see each other in part.
static int64_t partial_pairs(const Run& queries, const Run& keys, MaskKind kind, int64_t window) {
  if (kind == MaskKind::kChunk) {  // the start of the interval is no line
    int64_t pairs = 0;
    for (int64_t i = 0; i < queries.count; ++i) {
      const int64_t position = queries.first + i * queries.stride;
      pairs += count_within(keys, visible_keys(kind, window, position));
    }
    return pairs;
  }
  const Bounds seen = visible_keys(kind, window, queries.first);
  const int64_t pairs = sum_before(keys, seen.most + 1, queries.stride, queries.count);
  if (kind == MaskKind::kCausal) return pairs;
  return pairs - sum_before(keys, seen.least, queries.stride, queries.count);
}

int64_t count_visible_pairs(std::span<const SegmentRun> queries, std::span<const SegmentRun> keys,
                            MaskKind kind, int64_t window) {
  const std::vector<SegmentRun> sorted = sorted_by_segment(keys);
  int64_t pairs = 0;
  for (const SegmentRun& query : queries) {
    for (const SegmentRun& key : of_segment(sorted, query.segment)) {
      const Visibility seen = classify(kind, window, bounds_of(query.run), bounds_of(key.run));
      if (seen == Visibility::kHidden) continue;
      if (seen == Visibility::kFull) {
        pairs += query.run.count * key.run.count;
        continue;
      }
      pairs += partial_pairs(query.run, key.run, kind, window);
    }
  }
  return pairs;
}

int64_t count_visible_pairs(const BlockMask& mask) {
  return count_visible_pairs(cut_by_segment(mask.queries), cut_by_segment(mask.keys), mask.kind,
                             mask.window);
}

int64_t position_of(std::span<const Run> runs, int64_t row) {
  for (const Run& run : runs) {
    if (row < run.count) return run.first + row * run.stride;
    row -= run.count;
  }
  ODYSSEY_CHECK(false, "row {} behind the last run", row);
}

}  // namespace odyssey
