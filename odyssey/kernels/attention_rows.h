// SPDX-License-Identifier: Apache-2.0
// A BlockMask written out per row: each query sees an interval of key positions within one segment.
// Every mask kind has this form, so the kernels know intervals and segments and no mask kinds.
#pragma once
#include <cstdint>

#include "odyssey/base/buffer.h"
#include "odyssey/sequence/block_mask.h"

namespace odyssey {

// Positions must fit in 31 bits; fill() checks it.
class AttentionRows {
 public:
  // Keeps its memory from call to call. key_tile and query_tile: rows are also summed up in tiles.
  void fill(const BlockMask& mask, int64_t query_tile, int64_t key_tile);

  int64_t queries() const { return queries_; }
  int64_t keys() const { return keys_; }
  // Query i sees key j iff least[i] <= position[j] <= most[i], segments are equal and not 0.
  const int32_t* least() const { return least_.data(); }
  const int32_t* most() const { return most_.data(); }
  const int32_t* query_segment() const { return query_segment_.data(); }
  const int32_t* position() const { return position_.data(); }
  const int32_t* key_segment() const { return key_segment_.data(); }

  // What query tile `qt` sees of key tile `kt`; kPartial may still turn out to be nothing.
  Visibility tile(int64_t qt, int64_t kt) const;

 private:
  struct TileBounds {
    int32_t least, most;              // keys: of positions; queries: of the interval's lower end
    int32_t other_least, other_most;  // queries: of the interval's upper end
    int32_t segment_least, segment_most;
    bool ascending;  // segment ids never fall from row to row
  };
  bool share_a_segment(int64_t qt, int64_t kt) const;

  int64_t queries_ = 0, keys_ = 0, query_tile_ = 1, key_tile_ = 1;
  Buffer<int32_t> least_, most_, query_segment_, position_, key_segment_;
  Buffer<TileBounds> query_tiles_, key_tiles_;
};

}  // namespace odyssey
