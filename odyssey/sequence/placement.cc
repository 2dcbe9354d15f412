// SPDX-License-Identifier: Apache-2.0
#include "odyssey/sequence/placement.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "odyssey/base/error.h"

namespace odyssey {
namespace {

// Rows [begin, begin + count) of the storage order that `runs` describes.
std::vector<Run> cut(const std::vector<Run>& runs, int64_t begin, int64_t count) {
  std::vector<Run> part;
  for (const Run& run : runs) {
    const int64_t skip = std::min(begin, run.count);
    const int64_t take = std::min(run.count - skip, count);
    if (take > 0) part.push_back({run.first + skip * run.stride, take, run.stride});
    begin -= skip;
    count -= take;
  }
  return part;
}

// Neighbours become one run.
void append(const Run& run, std::vector<Run>& runs) {
  if (run.count == 0) return;
  if (!runs.empty() && runs.back().first + runs.back().count == run.first) {
    runs.back().count += run.count;
  } else {
    runs.push_back(run);
  }
}

}  // namespace

std::string_view name_of(PlacementKind kind) {
  switch (kind) {
    case PlacementKind::kContiguous:
      return "contiguous";
    case PlacementKind::kDualChunkSwap:
      return "dual_chunk_swap";
    case PlacementKind::kStriped:
      return "striped";
    case PlacementKind::kPerDocument:
      return "per_document";
  }
  return "?";
}

int64_t part_begin(int64_t count, int64_t parts, int64_t part) {
  return count / parts * part + std::min(part, count % parts);
}

Placement::Placement(PlacementKind kind, int64_t sequence_length, int ring_size, int ulysses_size)
    : kind_(kind),
      sequence_length_(sequence_length),
      ring_size_(ring_size),
      ulysses_size_(ulysses_size) {
  ODYSSEY_CHECK(sequence_length >= 0 && ring_size >= 1 && ulysses_size >= 1, "S={} R={} U={}",
                sequence_length, ring_size, ulysses_size);
  if (kind == PlacementKind::kPerDocument && sequence_length > 0) documents_ = {sequence_length};
}

Placement Placement::with_documents(std::vector<int64_t> documents) const {
  Placement other = *this;
  if (kind_ != PlacementKind::kPerDocument) return other;
  ODYSSEY_CHECK(std::accumulate(documents.begin(), documents.end(), int64_t{0}) == sequence_length_,
                "documents that do not add up to S={}", sequence_length_);
  other.documents_ = std::move(documents);
  return other;
}

// A document of n tokens is cut into 2R chunks of n / 2R tokens, and rank r gets chunks r and
// 2R-1-r. The n mod 2R tokens that are left over make single chunks one token longer: they are
// dealt to the ranks in turn, and the next document goes on where this one stopped, so that in the
// end ranks differ by at most one token, the first ones being longer. A rank that gets two of them
// lengthens both its chunks; with one, the late chunk in every other document and the early chunk
// else: late tokens see more keys.
std::vector<Run> Placement::per_document_block(int r) const {
  const int64_t chunks = 2 * int64_t{ring_size_};
  std::vector<Run> runs;
  int64_t begin = 0, dealt = 0;
  bool is_late = true;
  for (int64_t length : documents_) {
    const int64_t base = length / chunks, left = length % chunks;
    const auto chunk_size = [&](int64_t chunk) {
      const bool late_chunk = chunk >= ring_size_;
      const int64_t rank = late_chunk ? chunks - 1 - chunk : chunk;
      const int64_t turn = (rank - dealt % ring_size_ + ring_size_) % ring_size_;
      const int64_t got = (turn < left) + (turn + ring_size_ < left);
      return base + (got == 2 || (got == 1 && late_chunk == is_late));
    };
    int64_t first = begin;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const int64_t size = chunk_size(chunk);
      if (chunk == r || chunk == chunks - 1 - r) append({first, size, 1}, runs);
      first += size;
    }
    begin += length;
    dealt += left;
    is_late = !is_late;
  }
  return runs;
}

std::vector<Run> Placement::ring_block(int r) const {
  ODYSSEY_CHECK(r >= 0 && r < ring_size_, "ring rank {} of {}", r, ring_size_);
  std::vector<Run> runs;
  const auto add_chunk = [&](int64_t chunks, int64_t chunk) {
    const int64_t count = part_size(sequence_length_, chunks, chunk);
    if (count > 0) runs.push_back({part_begin(sequence_length_, chunks, chunk), count, 1});
  };
  switch (kind_) {
    case PlacementKind::kContiguous:
      add_chunk(ring_size_, r);
      break;
    case PlacementKind::kDualChunkSwap:
      add_chunk(2 * ring_size_, r);
      add_chunk(2 * ring_size_, 2 * ring_size_ - 1 - r);
      break;
    case PlacementKind::kStriped:
      if (r < sequence_length_) {
        runs.push_back({r, (sequence_length_ - 1 - r) / ring_size_ + 1, ring_size_});
      }
      break;
    case PlacementKind::kPerDocument:
      return per_document_block(r);
  }
  return runs;
}

int64_t Placement::ring_block_rows(int r) const {
  return count_rows(ring_block(r));
}

std::vector<Run> Placement::local_rows(int r, int u) const {
  return cut(ring_block(r), local_begin(r, u), local_count(r, u));
}

int64_t Placement::local_begin(int r, int u) const {
  return part_begin(ring_block_rows(r), ulysses_size_, u);
}

int64_t Placement::local_count(int r, int u) const {
  return part_size(ring_block_rows(r), ulysses_size_, u);
}

int64_t Placement::most_ring_block_rows() const {
  int64_t most = 0;
  for (int r = 0; r < ring_size_; ++r) most = std::max(most, ring_block_rows(r));
  return most;
}

int64_t Placement::most_local_rows() const {
  return part_size(most_ring_block_rows(), ulysses_size_, 0);
}

std::vector<int64_t> document_lengths(std::span<const int32_t> segments) {
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (i == 0 || segments[i] != segments[i - 1]) lengths.push_back(0);
    ++lengths.back();
  }
  return lengths;
}

std::vector<Placement> row_placements(const Placement& placement, int64_t batch,
                                      std::span<const int32_t> segments) {
  const int64_t length = placement.sequence_length();
  if (segments.empty() || placement.kind() != PlacementKind::kPerDocument) {
    return std::vector<Placement>(batch, placement);
  }
  ODYSSEY_CHECK(static_cast<int64_t>(segments.size()) == batch * length,
                "{} segment ids for {} rows of {}", segments.size(), batch, length);
  std::vector<Placement> rows;
  for (int64_t b = 0; b < batch; ++b) {
    rows.push_back(
        placement.with_documents(document_lengths(segments.subspan(b * length, length))));
  }
  return rows;
}

}  // namespace odyssey
