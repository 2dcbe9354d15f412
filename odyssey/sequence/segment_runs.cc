// SPDX-License-Identifier: Apache-2.0
#include "odyssey/sequence/segment_runs.h"

#include <algorithm>

namespace odyssey {
namespace {

bool is_earlier(const SegmentRun& a, const SegmentRun& b) {
  return a.segment < b.segment;
}

}  // namespace

std::vector<Document> documents_of(std::span<const int32_t> segments) {
  std::vector<Document> documents;
  const auto length = static_cast<int64_t>(segments.size());
  for (int64_t begin = 0; begin < length;) {
    int64_t end = begin + 1;
    while (end < length && segments[end] == segments[begin]) ++end;
    if (segments[begin] != 0) documents.push_back({begin, end - begin, segments[begin]});
    begin = end;
  }
  return documents;
}

std::vector<SegmentRun> segment_runs(std::span<const Run> runs) {
  std::vector<SegmentRun> cut;
  int64_t row = 0;
  for (const Run& run : runs) {
    if (run.count > 0) cut.push_back({run, 1, row});
    row += run.count;
  }
  return cut;
}

std::vector<SegmentRun> segment_runs(std::span<const Run> runs,
                                     std::span<const Document> documents) {
  std::vector<SegmentRun> cut;
  int64_t row = 0;
  for (const Run& run : runs) {
    // Rows of the run at positions before this one.
    const auto rows_before = [&run](int64_t position) {
      if (position <= run.first) return int64_t{0};
      return std::min(run.count, (position - run.first + run.stride - 1) / run.stride);
    };
    auto document = std::upper_bound(
        documents.begin(), documents.end(), run.first,
        [](int64_t position, const Document& d) { return position < d.begin + d.count; });
    for (; document != documents.end(); ++document) {
      const int64_t begin = rows_before(document->begin);
      if (begin == run.count) break;
      const int64_t count = rows_before(document->begin + document->count) - begin;
      if (count == 0) continue;  // shorter than the stride
      cut.push_back(
          {{run.first + begin * run.stride, count, run.stride}, document->segment, row + begin});
    }
    row += run.count;
  }
  return cut;
}

std::vector<SegmentRun> sorted_by_segment(std::span<const SegmentRun> runs) {
  std::vector<SegmentRun> sorted(runs.begin(), runs.end());
  std::stable_sort(sorted.begin(), sorted.end(), is_earlier);
  return sorted;
}

std::span<const SegmentRun> of_segment(std::span<const SegmentRun> sorted, int32_t segment) {
  const auto [begin, end] =
      std::equal_range(sorted.begin(), sorted.end(), SegmentRun{{}, segment, 0}, is_earlier);
  return {begin, end};
}

}  // namespace odyssey
