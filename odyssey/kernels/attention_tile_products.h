// SPDX-License-Identifier: Apache-2.0
// The mask of a tile of queries and the products of a panel of queries with a tile of keys.
// Included through attention_tile_simd.h only.
#pragma once
#include "odyssey/kernels/attention_tile_pack.h"

namespace odyssey {
namespace {

constexpr float kNothing = -1e30f;  // kNothingSeen of block_attention.h
// Scores of hidden pairs: far below that, so that exp(hidden - max) is 0 even for a row that has
// seen nothing yet.
constexpr float kHidden = -3e38f;

struct KeyRange {
  int64_t begin, end;  // multiples of 8
  ODYSSEY_INLINE int64_t count() const { return end - begin; }
};

// What the queries of a tile see, and bounds of that for each panel.
struct TileMask {
  struct Bounds {
    int32_t least, most, segment_least, segment_most;
  };
  int32_t least[kQueryTile], most[kQueryTile], segment[kQueryTile];
  Bounds panels[kPanels];

  void fill(const QueryTile& q) {
    for (int64_t p = 0; p < kPanels; ++p) panels[p] = {INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN};
    for (int64_t i = 0; i < kQueryTile; ++i) {
      const bool sees = i < q.rows && q.segment[i] != 0 && q.least[i] <= q.most[i];
      least[i] = sees ? q.least[i] : 1;
      most[i] = sees ? q.most[i] : 0;
      segment[i] = sees ? q.segment[i] : 0;
      if (!sees) continue;
      Bounds& b = panels[i / kPanel];
      if (least[i] < b.least) b.least = least[i];
      if (most[i] > b.most) b.most = most[i];
      if (segment[i] < b.segment_least) b.segment_least = segment[i];
      if (segment[i] > b.segment_most) b.segment_most = segment[i];
    }
  }
  // The keys of the tile that a panel may see: the others cost nothing.
  KeyRange seen_by(int64_t panel, const KeyTile& key) const {
    const Bounds& b = panels[panel];
    KeyRange range{kKeyTile, 0};
    for (int64_t j = 0; j < kKeyTile; ++j) {
      const int32_t at = key.position[j], segment_at = key.segment[j];
      if (at < b.least || at > b.most) continue;
      if (segment_at < b.segment_least || segment_at > b.segment_most) continue;
      if (range.begin > j) range.begin = j / 8 * 8;
      range.end = j / 8 * 8 + 8;
    }
    return range;
  }
  // Overwrites hidden scores of a panel; row j stands at scores + j * stride.
  void hide(int64_t panel, const KeyTile& key, KeyRange keys, float* scores, int64_t stride) const {
    for (int64_t v = 0; v < 3; ++v) {
      const int64_t i = panel * kPanel + v * kLanes;
      const IntVector lower = load(least + i), upper = load(most + i), own = load(segment + i);
      for (int64_t j = keys.begin; j < keys.end; ++j) {
        float* s = scores + j * stride + v * kLanes;
        const IntVector at = key.position[j] - IntVector{};
        const IntVector seen = (at >= lower) & (at <= upper) & (own == key.segment[j]) & (own != 0);
        store(s, seen ? load(s) : broadcast(kHidden));
      }
    }
  }
};

constexpr int64_t kMaskWords = sizeof(TileMask) / 4;
static_assert(kMaskWords % 4 == 0);

// Brings memory to L2 in small portions, one with each register tile.
class Prefetcher {
 public:
  ODYSSEY_INLINE Prefetcher(Ahead ahead, int64_t register_tiles)
      : at_(ahead.at),
        end_(ahead.at + ahead.lines * kLine),
        portion_((ahead.lines + register_tiles - 1) / register_tiles * kLine) {}
  ODYSSEY_INLINE void portion() {
    for (const float* stop = at_ + portion_; at_ < stop && at_ < end_; at_ += kLine) {
      __builtin_prefetch(at_, 0, 2);
    }
  }

 private:
  static constexpr int64_t kLine = 16;
  const float *at_, *end_;
  int64_t portion_;
};

// S^T of a panel: scores[j] = k[j] . q for the keys of the range.
ODYSSEY_INLINE void score(const float* by_key, KeyRange keys, const float* queries,
                          const TileOptions& o, Prefetcher& ahead, float* scores, int64_t stride) {
  for (int64_t j = keys.begin; j < keys.end; j += kTileRows) {
    ahead.portion();
    multiply_tile<3, false>(by_key + j / kStrip * kStrip * o.padded + j % kStrip, 1, kStrip,
                            queries, kPanel, scores + j * stride, stride, o.head_size);
  }
}

// Products of which some weights are 0 for hidden pairs, whose other factor may be NaN: as
// multiply_tile, but 0 times anything is 0. The weights are B, or A with kOfA. Slow; only for
// operands that are not finite.
template <bool kOfA>
void add_seen(const float* a, int64_t a_row, int64_t a_r, const float* b, int64_t b_row, float* c,
              int64_t c_row, int64_t rows, int64_t vectors, int64_t depth) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t r = 0; r < depth; ++r) {
      const float x = a[i * a_row + r * a_r];
      if (kOfA && x == 0) continue;
      for (int64_t v = 0; v < vectors; ++v) {
        const Vector y = load(b + r * b_row + v * kLanes);
        float* out = c + i * c_row + v * kLanes;
        const Vector product = x * y;
        store(out, load(out) + (kOfA || y != Vector{} ? product : Vector{}));
      }
    }
  }
}

// sums[d] += sum over keys of x[key][d] * weights[key], for a panel: O^T += V^T P^T.
ODYSSEY_INLINE void add_weighted(const float* by_element, KeyRange keys, const float* weights,
                                 int64_t stride, bool careful, const TileOptions& o,
                                 Prefetcher& ahead, float* sums) {
  const float* b = weights + keys.begin * stride;
  for (int64_t d = 0; d < o.head_size; d += kTileRows) {
    ahead.portion();
    const float* a = by_element + (d / kStrip * kKeyTile + keys.begin) * kStrip + d % kStrip;
    float* c = sums + d * kPanel;
    if (careful) {
      add_seen<false>(a, 1, kStrip, b, stride, c, kPanel, kTileRows, 3, keys.count());
    } else {
      multiply_tile<3, true>(a, 1, kStrip, b, stride, c, kPanel, keys.count());
    }
  }
}

// out[key] += sum over queries [first, first + count) of weights[key][query] * x[query]:
// dV += P^T dO. x stands in column blocks, out in rows.
void add_gradient(const float* weights, KeyRange keys, int64_t first, int64_t count,
                  const float* blocks, bool careful, const TileOptions& o, Prefetcher& ahead,
                  float* out) {
  const ColumnBlocks columns{o.padded / kLanes};
  for (int64_t at = 0; at < columns.vectors;) {
    const int64_t width = columns.width(at), row = width * kLanes;
    const float* b = blocks + at * kLanes * kQueryTile + first * row;
    for (int64_t j = keys.begin; j < keys.end; j += kTileRows) {
      ahead.portion();
      const float* a = weights + j * kQueryTile + first;
      float* c = out + j * o.padded + at * kLanes;
      if (careful) {
        add_seen<true>(a, kQueryTile, 1, b, row, c, o.padded, kTileRows, width, count);
      } else if (width == 3) {
        multiply_tile<3, true>(a, kQueryTile, 1, b, row, c, o.padded, count);
      } else if (width == 2) {
        multiply_tile<2, true>(a, kQueryTile, 1, b, row, c, o.padded, count);
      } else {
        multiply_tile<1, true>(a, kQueryTile, 1, b, row, c, o.padded, count);
      }
    }
    at += width;
  }
}

// The soft cap of the scores of a panel, then the mask.
ODYSSEY_INLINE void cap_and_hide(const TileMask& mask, int64_t panel, const KeyTile& key,
                                 bool partial, KeyRange keys, const TileOptions& o, float* scores,
                                 int64_t stride) {
  if (o.soft_cap != 0) {
    const float inverse = 1.0f / o.soft_cap;
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      for (int64_t i = 0; i < kPanel; i += kLanes) {
        float* s = scores + j * stride + i;
        store(s, soft_cap(load(s), o.soft_cap, inverse));
      }
    }
  }
  if (partial) mask.hide(panel, key, keys, scores, stride);
}

}  // namespace
}  // namespace odyssey
