// SPDX-License-Identifier: Apache-2.0
#include "odyssey/sequence/placement.h"

#include <algorithm>
#include <numeric>

#include "odyssey/base/error.h"
#include "odyssey/sequence/per_document.h"

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
  if (kind != PlacementKind::kPerDocument) return;
  std::vector<int64_t> one;
  if (sequence_length > 0) one.push_back(sequence_length);
  *this = with_documents(one);
}

Placement Placement::with_documents(std::span<const int64_t> documents) const {
  Placement other = *this;
  if (kind_ != PlacementKind::kPerDocument) return other;
  ODYSSEY_CHECK(std::accumulate(documents.begin(), documents.end(), int64_t{0}) == sequence_length_,
                "documents that do not add up to S={}", sequence_length_);
  other.blocks_ = std::make_shared<const std::vector<std::vector<Run>>>(
      per_document_blocks(documents, ring_size_));
  return other;
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
      return (*blocks_)[r];
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
