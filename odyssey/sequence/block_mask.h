// SPDX-License-Identifier: Apache-2.0
// BlockMask: which query rows of one block see which key rows of another. It knows rows only by
// their global position and segment id, never by the order in which they are stored, so every
// placement is masked by the same rule.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace odyssey {

// Rows stored one after the other whose global positions are first, first + stride, ...
// One contiguous chunk, half of a swapped pair, or a stripe.
struct Run {
  int64_t first = 0;
  int64_t count = 0;
  int64_t stride = 1;
  bool operator==(const Run&) const = default;
};

enum class MaskKind {
  kCausal,        // key <= query
  kFull,          // every key
  kLocalSliding,  // query - window < key <= query
  kChunk,         // key <= query, both in the same chunk of `window` positions
};
std::string_view name_of(MaskKind kind);

// The mask of one attention call, documents apart.
struct MaskRule {
  MaskKind kind = MaskKind::kCausal;
  int64_t window = 0;  // of kLocalSliding and kChunk, at least 1
  bool operator==(const MaskRule&) const = default;
};

// A mask, and how many layers of a model have it.
struct MaskShare {
  MaskRule mask;
  int64_t layers = 1;
  bool operator==(const MaskShare&) const = default;
};

// Packed documents: rows see each other only if their segment ids are equal and not 0. Id 0 is
// padding, which sees nothing and is seen by nothing.
struct BlockRows {
  std::span<const Run> runs;          // in storage order
  std::span<const int32_t> segments;  // [T] in storage order; empty: one document, no padding
};

struct BlockMask {
  BlockRows queries, keys;
  MaskKind kind = MaskKind::kCausal;
  int64_t window = 0;  // of kLocalSliding and kChunk, at least 1
};

// Smallest and largest value among some rows.
struct Bounds {
  int64_t least = 0;
  int64_t most = 0;
};

// The keys that one query may see, as an interval of global positions: every mask kind is one.
Bounds visible_keys(MaskKind kind, int64_t window, int64_t query);

// The rule for one pair of global positions; segments are a separate matter.
inline bool visible(MaskKind kind, int64_t window, int64_t query, int64_t key) {
  const Bounds keys = visible_keys(kind, window, query);
  return keys.least <= key && key <= keys.most;
}

enum class Visibility { kHidden, kPartial, kFull };

// What queries with positions in `query` see of keys with positions in `key`: kHidden and kFull are
// sure, kPartial means that single pairs must be asked. Segments are a separate matter.
Visibility classify(MaskKind kind, int64_t window, Bounds query, Bounds key);
// The same for segment ids.
Visibility classify_segments(Bounds query, Bounds key);

// Number of rows, and the number of (query, key) pairs that the mask leaves visible.
int64_t count_rows(std::span<const Run> runs);
int64_t count_visible_pairs(const BlockMask& mask);

// Global position of storage row `row`.
int64_t position_of(std::span<const Run> runs, int64_t row);

}  // namespace odyssey
