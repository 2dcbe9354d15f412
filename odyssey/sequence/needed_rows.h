// SPDX-License-Identifier: Apache-2.0
// Which rows of a block of keys some queries see at all: the rows that must travel to them. Made
// from positions, the mask kind and, where they are known, the documents of the row.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "odyssey/sequence/segment_runs.h"

namespace odyssey {

// Rows [begin, begin + count) of a block's storage order.
struct RowRange {
  int64_t begin = 0;
  int64_t count = 0;
  bool operator==(const RowRange&) const = default;
};

// The rows of `keys` that at least one row of `queries` sees, ascending, without empty or touching
// ranges. Exact: no row more, no row less. Takes a few operations for each pair of runs of one
// document; only where a mask leaves holes in a strided run is every row asked.
std::vector<RowRange> needed_rows(std::span<const SegmentRun> queries,
                                  std::span<const SegmentRun> keys, MaskKind kind, int64_t window);

// The rows of a, of b, or of both; each ascending, without empty or touching ranges.
std::vector<RowRange> united(const std::vector<RowRange>& a, const std::vector<RowRange>& b);

int64_t count_rows(std::span<const RowRange> ranges);

// The positions of these rows of a block: runs again, in the same order.
std::vector<Run> runs_of(std::span<const Run> block, std::span<const RowRange> ranges);

}  // namespace odyssey
