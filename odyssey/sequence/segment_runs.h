// SPDX-License-Identifier: Apache-2.0
// The rows of a block, cut where a document begins or ends: which rows can see each other at all is
// then a matter of a few numbers, however long the documents are.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "odyssey/sequence/block_mask.h"

namespace odyssey {

// Positions [begin, begin + count) of one row have this segment id, not 0.
struct Document {
  int64_t begin = 0;
  int64_t count = 0;
  int32_t segment = 1;
  bool operator==(const Document&) const = default;
};

// Of a row with these segment ids [S] in natural order, ascending, without padding. An id that
// comes again later makes two entries, which see each other.
std::vector<Document> documents_of(std::span<const int32_t> segments);

// Neighbours in storage, on one progression of positions, in one document.
struct SegmentRun {
  Run run;
  int32_t segment = 1;
  int64_t first_row = 0;  // of the block's storage order
};

// The rows of a block: of one document without padding, or of those documents; padding is left out.
// Takes time of order runs x log(documents) + result, never of rows.
std::vector<SegmentRun> segment_runs(std::span<const Run> runs);
std::vector<SegmentRun> segment_runs(std::span<const Run> runs,
                                     std::span<const Document> documents);

// Sorted by segment, otherwise in the same order; and those of one segment among them.
std::vector<SegmentRun> sorted_by_segment(std::span<const SegmentRun> runs);
std::span<const SegmentRun> of_segment(std::span<const SegmentRun> sorted, int32_t segment);

// Number of (query, key) pairs that see each other. Looks at runs of the same segment only, so rows
// of thousands of documents take no time.
int64_t count_visible_pairs(std::span<const SegmentRun> queries, std::span<const SegmentRun> keys,
                            MaskKind kind, int64_t window);

}  // namespace odyssey
