// SPDX-License-Identifier: Apache-2.0
// Placement: which global token sits on which rank, and in which order it is stored there.
//
// The S positions are first cut over the R ring ranks, in one of four ways; the rows of ring rank
// r (its *ring block*) are then cut, in storage order, over the U Ulysses ranks. So the U ranks of
// one Ulysses group together always hold exactly one ring block, in order. Any S, R and U fit:
// where S does not divide, the first parts are one token longer, and a part may be empty.
//
// kPerDocument depends on the documents of a row, but only in which tokens a rank holds, never in
// how many: part r of R of the row, as kContiguous. So rows of one batch may have different
// documents, and all sizes (buffers, messages) are known before any batch.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "odyssey/sequence/block_mask.h"

namespace odyssey {

enum class PlacementKind {
  kContiguous,     // ring rank r holds chunk r of R
  kDualChunkSwap,  // chunks r and 2R-1-r of 2R: under a causal mask every rank has the same work
  kStriped,        // positions r, r+R, r+2R, ...
  kPerDocument,    // of long documents chunks r and 2R-1-r of 2R, short ones whole: packed rows
};
std::string_view name_of(PlacementKind kind);

class Placement {
 public:
  // S >= 0, R >= 1, U >= 1. kPerDocument: one document of S tokens.
  Placement(PlacementKind kind, int64_t sequence_length, int ring_size, int ulysses_size);
  // The same, for a row of other documents; kinds other than kPerDocument stay as they are.
  // documents: lengths, all at least 1, padding counted as a document; their sum is S.
  Placement with_documents(std::span<const int64_t> documents) const;

  PlacementKind kind() const { return kind_; }
  int64_t sequence_length() const { return sequence_length_; }
  int ring_size() const { return ring_size_; }
  int ulysses_size() const { return ulysses_size_; }

  // Rows of ring block r as runs of global positions, in storage order.
  std::vector<Run> ring_block(int r) const;
  int64_t ring_block_rows(int r) const;
  // Rows of Ulysses rank u within ring block r: the part [begin, begin + count) of its storage
  // order.
  std::vector<Run> local_rows(int r, int u) const;
  int64_t local_begin(int r, int u) const;
  int64_t local_count(int r, int u) const;
  // The largest over all ranks: what buffers are sized for.
  int64_t most_ring_block_rows() const;
  int64_t most_local_rows() const;

 private:
  PlacementKind kind_;
  int64_t sequence_length_;
  int ring_size_;
  int ulysses_size_;
  std::shared_ptr<const std::vector<std::vector<Run>>> blocks_;  // of kPerDocument: ring blocks
};

// Lengths of the stretches of equal segment ids in a row [S]: its documents, and its padding.
std::vector<int64_t> document_lengths(std::span<const int32_t> segments);

// Where the tokens of each row of a batch sit: `placement` with the documents of the row. segments
// [B, S] in natural order, the same on every rank; empty: one document a row. Returns B placements.
std::vector<Placement> row_placements(const Placement& placement, int64_t batch,
                                      std::span<const int32_t> segments);

// Part `part` of `count` things over `parts`: the first count % parts parts are one longer.
int64_t part_begin(int64_t count, int64_t parts, int64_t part);
inline int64_t part_size(int64_t count, int64_t parts, int64_t part) {
  return part_begin(count, parts, part + 1) - part_begin(count, parts, part);
}

}  // namespace odyssey
