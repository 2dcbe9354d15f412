// SPDX-License-Identifier: Apache-2.0
// Attention of 96 queries to 64 keys, written once for vectors of ODYSSEY_LANES floats. Included by
// attention_tile_{portable,avx2,avx512}.cc, each compiled with its own flags.
//
// Queries stand in panels of three vectors. Per panel and key tile, at head size 128 and 16 lanes:
// the panel of Q^T (24 KiB) or of P (12 KiB) stays in L1 and is multiplied with K or V, which
// stream by in the order in which they were packed.
#pragma once
#include "odyssey/kernels/attention_tile.h"
#include "odyssey/kernels/attention_vector.h"

namespace odyssey {
namespace {

constexpr int64_t kPanel = 3 * kLanes;
constexpr int64_t kPanels = kQueryTile / kPanel;

// Scores of hidden pairs: far below kNothingSeen of block_attention.h, so that exp(hidden - max) is
// 0 even for a row that has seen nothing yet.
constexpr float kHidden = -3e38f;

// --- Loading and storing -------------------------------------------------------------------------

ODYSSEY_INLINE float widened(float x) {
  return x;
}
ODYSSEY_INLINE float widened(uint16_t x) {
  const uint32_t word = static_cast<uint32_t>(x) << 16;
  float value;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}
ODYSSEY_INLINE Vector load_whole(const float* p) {
  return load(p);
}
ODYSSEY_INLINE Vector load_whole(const uint16_t* p) {
  typedef uint16_t Halves __attribute__((vector_size(kLanes * 2)));
  Halves halves;
  std::memcpy(&halves, p, sizeof(halves));
  return of_bits(__builtin_convertvector(halves, IntVector) << 16);
}

// Rows of an operand, float or bf16 (as uint16_t), that ends after `rows` rows and `size` columns.
template <class T>
struct Operand {
  const T* data;
  int64_t stride, rows, size;

  // Columns [d, d + kLanes) of row i, zeros behind the ends.
  ODYSSEY_INLINE Vector at(int64_t i, int64_t d) const {
    if (i >= rows) return Vector{};
    const T* p = data + i * stride + d;
    if (d + kLanes <= size) return load_whole(p);
    Vector v{};
    for (int64_t lane = 0; lane < size - d; ++lane) v[lane] = widened(p[lane]);
    return v;
  }
};

// Calls body(Operand) for the storage type of the call.
template <class Body>
ODYSSEY_INLINE auto with_operand(const void* data, int64_t stride, int64_t rows,
                                 const TileOptions& o, const Body& body) {
  if (o.is_bf16) {
    return body(Operand<uint16_t>{static_cast<const uint16_t*>(data), stride, rows, o.head_size});
  }
  return body(Operand<float>{static_cast<const float*>(data), stride, rows, o.head_size});
}

// 0 in all lanes unless some x so far was NaN or infinite.
struct FiniteCheck {
  Vector sum{};
  ODYSSEY_INLINE void see(Vector x) { sum += x * 0.0f; }
  ODYSSEY_INLINE bool passed() const { return !any(sum != Vector{}); }
};

// Where element d of lane 0 of the panel with query i stands.
ODYSSEY_INLINE int64_t in_panel(int64_t i, int64_t d, int64_t padded) {
  return (i / kPanel * padded + d) * kPanel + i % kPanel;
}

// Columns of a matrix of queries as the right operand of products over queries: blocks of three
// vectors, at the end of two or one, each [96][width] and contiguous.
struct ColumnBlocks {
  int64_t vectors;  // in a row
  ODYSSEY_INLINE int64_t width(int64_t at) const {
    const int64_t left = vectors - at;
    return left == 4 ? 2 : left < 3 ? left : 3;  // 2 + 2, because one vector alone is slow
  }
};

// Rows of queries, times `factor`, to panels; with `blocks` also to column blocks. Returns whether
// all are finite.
bool load_queries(const void* data, int64_t stride, int64_t rows, const TileOptions& o,
                  float factor, float* panels, float* blocks) {
  return with_operand(data, stride, rows, o, [&](auto operand) {
    FiniteCheck check;
    const ColumnBlocks columns{o.padded / kLanes};
    for (int64_t at = 0; at < columns.vectors;) {
      const int64_t width = columns.width(at);
      for (int64_t v = at; v < at + width; ++v) {
        for (int64_t i = 0; i < kQueryTile; i += kLanes) {
          Vector x[kLanes];
          for (int64_t lane = 0; lane < kLanes; ++lane) {
            x[lane] = factor * operand.at(i + lane, v * kLanes);
            check.see(x[lane]);
            if (blocks == nullptr) continue;
            store(blocks + (at * kQueryTile + (i + lane) * width + v - at) * kLanes, x[lane]);
          }
          transpose(x);
          for (int64_t lane = 0; lane < kLanes; ++lane) {
            store(panels + in_panel(i, v * kLanes + lane, o.padded), x[lane]);
          }
        }
      }
      at += width;
    }
    return check.passed();
  });
}

// to = or += factor * panels, for the rows and columns that there are. factor: one a query.
template <bool kAdd>
void store_queries(const float* panels, const float* factor, int64_t rows, const TileOptions& o,
                   float* to, int64_t stride) {
  for (int64_t i = 0; i < rows; i += kLanes) {
    for (int64_t d = 0; d < o.head_size; d += kLanes) {
      Vector x[kLanes];
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        x[lane] = load(factor + i) * load(panels + in_panel(i, d + lane, o.padded));
      }
      transpose(x);
      const int64_t count = o.head_size - d < kLanes ? o.head_size - d : kLanes;
      for (int64_t lane = 0; lane < kLanes && i + lane < rows; ++lane) {
        float* row = to + (i + lane) * stride + d;
        if (count == kLanes) {
          store(row, kAdd ? load(row) + x[lane] : x[lane]);
        } else {
          for (int64_t c = 0; c < count; ++c) row[c] = kAdd ? row[c] + x[lane][c] : x[lane][c];
        }
      }
    }
  }
}

bool pack(const void* from, int64_t stride, int64_t rows, const TileOptions& o, float* by_key,
          float* by_element) {
  return with_operand(from, stride, rows, o, [&](auto operand) {
    FiniteCheck check;
    for (int64_t j = 0; j < kKeyTile; j += kLanes) {
      for (int64_t d = 0; d < o.padded; d += kLanes) {
        Vector x[kLanes];
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          x[lane] = operand.at(j + lane, d);
          check.see(x[lane]);
          if (by_element == nullptr) continue;
          const int64_t strip = d / kStrip * kKeyTile + j + lane;
          store(by_element + strip * kStrip + d % kStrip, x[lane]);
        }
        if (by_key == nullptr) continue;
        transpose(x);
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const int64_t strip = j / kStrip * o.padded + d + lane;
          store(by_key + strip * kStrip + j % kStrip, x[lane]);
        }
      }
    }
    return check.passed();
  });
}

// --- Masks ---------------------------------------------------------------------------------------

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

// --- Products ------------------------------------------------------------------------------------

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

// --- Forward -------------------------------------------------------------------------------------

// The scratch of one query tile. P is exp(score - reference), and sum and accumulator belong to
// that reference; it follows the maximum only when that has grown by more than kSlack, so that
// rescaling is rare: sums of e^8 are as exact as sums of 1.
struct ForwardTile {
  static constexpr float kSlack = 8;
  float *q, *accumulator;  // panels of [padded][kPanel]; q times the scale
  float *reference, *max, *sum;
  TileMask* mask;

  ForwardTile(float* words, int64_t padded)
      : q(words),
        accumulator(q + kQueryTile * padded),
        reference(accumulator + kQueryTile * padded),
        max(reference + kQueryTile),
        sum(max + kQueryTile),
        mask(reinterpret_cast<TileMask*>(sum + kQueryTile)) {}
};
int64_t forward_words(int64_t padded) {
  return 2 * kQueryTile * padded + 3 * kQueryTile + kMaskWords;
}
int64_t shared_words() {
  return 2 * kKeyTile * kQueryTile;  // scores and, backward, dS
}

void load(const QueryTile& q, const TileOptions& o, float* words) {
  const ForwardTile tile(words, o.padded);
  tile.mask->fill(q);
  load_queries(q.q, q.q_stride, q.rows, o, o.scale, tile.q, nullptr);
  TileOptions plain = o;
  plain.is_bf16 = false;
  load_queries(q.accumulator, q.accumulator_stride, q.rows, plain, 1, tile.accumulator, nullptr);
  for (int64_t i = 0; i < kQueryTile; ++i) {
    tile.max[i] = tile.reference[i] = i < q.rows ? q.max[i] : -1e30f;
    tile.sum[i] = i < q.rows ? q.sum[i] : 0.0f;
  }
}

void store(const QueryTile& q, const TileOptions& o, float* words) {
  const ForwardTile tile(words, o.padded);
  float* shrink = tile.reference;
  for (int64_t i = 0; i < kQueryTile; i += kLanes) {
    store(shrink + i, exponential(load(tile.reference + i) - load(tile.max + i)));
  }
  for (int64_t i = 0; i < q.rows; ++i) {
    q.max[i] = tile.max[i];
    q.sum[i] = tile.sum[i] * shrink[i];
  }
  store_queries<false>(tile.accumulator, shrink, q.rows, o, q.accumulator, q.accumulator_stride);
}

// The largest score so far of each query of a panel; where it has left the reference behind, the
// reference, sum and accumulator follow.
void follow_maximum(const ForwardTile& tile, int64_t panel, KeyRange keys, const float* scores,
                    const TileOptions& o) {
  Vector most[3] = {broadcast(kHidden), broadcast(kHidden), broadcast(kHidden)};
  for (int64_t j = keys.begin; j < keys.end; ++j) {
#pragma GCC unroll 3
    for (int64_t v = 0; v < 3; ++v)
      most[v] = greater(most[v], load(scores + j * kPanel + v * kLanes));
  }
#pragma GCC unroll 3
  for (int64_t v = 0; v < 3; ++v) {
    const int64_t i = panel * kPanel + v * kLanes;
    const Vector now = greater(load(tile.max + i), most[v]);
    store(tile.max + i, now);
    const Vector before = load(tile.reference + i);
    const IntVector moved = now > before + ForwardTile::kSlack;
    if (!any(moved)) continue;
    const Vector reference = moved ? now : before;
    const Vector shrink = exponential(before - reference);
    store(tile.reference + i, reference);
    store(tile.sum + i, load(tile.sum + i) * shrink);
    float* accumulator = tile.accumulator + panel * o.padded * kPanel + v * kLanes;
    for (int64_t d = 0; d < o.head_size; ++d) {
      store(accumulator + d * kPanel, load(accumulator + d * kPanel) * shrink);
    }
  }
}

// scores <- P, and its sum.
void exponentiate(const ForwardTile& tile, int64_t panel, KeyRange keys, float* scores) {
  Vector reference[3], sum[3];
#pragma GCC unroll 3
  for (int64_t v = 0; v < 3; ++v) {
    reference[v] = load(tile.reference + panel * kPanel + v * kLanes);
    sum[v] = load(tile.sum + panel * kPanel + v * kLanes);
  }
  for (int64_t j = keys.begin; j < keys.end; ++j) {
#pragma GCC unroll 3
    for (int64_t v = 0; v < 3; ++v) {
      float* s = scores + j * kPanel + v * kLanes;
      const Vector p = exponential(load(s) - reference[v]);
      store(s, p);
      sum[v] += p;
    }
  }
#pragma GCC unroll 3
  for (int64_t v = 0; v < 3; ++v) store(tile.sum + panel * kPanel + v * kLanes, sum[v]);
}

void forward(const KeyTile& key, bool partial, const TileOptions& o, Ahead next, float* words,
             float* scores) {
  const ForwardTile tile(words, o.padded);
  Prefetcher ahead(next, kPanels * (kKeyTile + o.padded) / kTileRows);
  for (int64_t p = 0; p < kPanels; ++p) {
    const KeyRange keys = partial ? tile.mask->seen_by(p, key) : KeyRange{0, kKeyTile};
    if (keys.count() <= 0) continue;
    score(key.k_by_key, keys, tile.q + p * o.padded * kPanel, o, ahead, scores, kPanel);
    cap_and_hide(*tile.mask, p, key, partial, keys, o, scores, kPanel);
    follow_maximum(tile, p, keys, scores, o);
    exponentiate(tile, p, keys, scores);
    add_weighted(key.v_by_element, keys, scores, kPanel, partial && !key.finite, o, ahead,
                 tile.accumulator + p * o.padded * kPanel);
  }
}

// --- Backward ------------------------------------------------------------------------------------

struct BackwardTile {
  float *q, *dout, *dq;             // panels of [padded][kPanel]; q times the scale
  float *q_columns, *dout_columns;  // column blocks
  float *lse, *delta;
  TileMask* mask;
  float* finite;  // 1 if q and dout hold neither NaN nor infinity, else 0

  BackwardTile(float* words, int64_t padded)
      : q(words),
        dout(q + kQueryTile * padded),
        dq(dout + kQueryTile * padded),
        q_columns(dq + kQueryTile * padded),
        dout_columns(q_columns + kQueryTile * padded),
        lse(dout_columns + kQueryTile * padded),
        delta(lse + kQueryTile),
        mask(reinterpret_cast<TileMask*>(delta + kQueryTile)),
        finite(delta + kQueryTile + kMaskWords) {}
};
int64_t backward_words(int64_t padded) {
  return 5 * kQueryTile * padded + 2 * kQueryTile + kMaskWords + kStrip;
}

void load_backward(const QueryTile& q, const TileOptions& o, float* words) {
  const BackwardTile tile(words, o.padded);
  tile.mask->fill(q);
  const bool q_finite = load_queries(q.q, q.q_stride, q.rows, o, o.scale, tile.q, tile.q_columns);
  const bool dout_finite =
      load_queries(q.dout, q.dout_stride, q.rows, o, 1, tile.dout, tile.dout_columns);
  *tile.finite = q_finite && dout_finite ? 1.0f : 0.0f;
  std::memset(tile.dq, 0, static_cast<size_t>(kQueryTile * o.padded) * sizeof(float));
  for (int64_t i = 0; i < kQueryTile; ++i) {
    // A row that sees nothing has lse = -inf and only hidden scores: any finite number serves.
    tile.lse[i] = i < q.rows && q.max[i] > -1e30f ? q.max[i] : 0.0f;
    tile.delta[i] = i < q.rows ? q.sum[i] : 0.0f;
  }
}

void store_backward(const QueryTile& q, const TileOptions& o, float* words) {
  const BackwardTile tile(words, o.padded);
  for (int64_t i = 0; i < kQueryTile; ++i) tile.lse[i] = o.scale;
  store_queries<true>(tile.dq, tile.lse, q.rows, o, q.accumulator, q.accumulator_stride);
}

// scores <- P = exp(S - lse), dscores <- dS = P (dP - delta), times the derivative of the soft cap.
template <bool kPartial>
void softmax_backward(const BackwardTile& tile, int64_t panel, KeyRange keys, const TileOptions& o,
                      float* scores, float* dscores) {
  const float inverse = o.soft_cap != 0 ? 1.0f / o.soft_cap : 0.0f;
  for (int64_t v = 0; v < 3; ++v) {
    const Vector lse = load(tile.lse + panel * kPanel + v * kLanes);
    const Vector delta = load(tile.delta + panel * kPanel + v * kLanes);
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      float* s = scores + j * kQueryTile + v * kLanes;
      float* ds = dscores + j * kQueryTile + v * kLanes;
      const Vector score = load(s);
      const Vector p = exponential(score - lse);
      Vector d = p * (load(ds) - delta);
      if (o.soft_cap != 0) {
        const Vector tanh = score * inverse;
        d *= 1.0f - tanh * tanh;
      }
      if (kPartial) d = p != Vector{} ? d : Vector{};
      store(s, p);
      store(ds, d);
    }
  }
}

void backward(const KeyTile& key, bool partial, const TileOptions& o, Ahead next, float* words,
              float* shared) {
  const BackwardTile tile(words, o.padded);
  Prefetcher ahead(next, kPanels * (3 * kKeyTile + o.padded) / kTileRows);
  float* scores = shared;  // [64][96]
  float* dscores = scores + kKeyTile * kQueryTile;
  const bool careful_key = partial && !key.finite;
  const bool careful_query = partial && *tile.finite == 0;
  for (int64_t p = 0; p < kPanels; ++p) {
    const KeyRange keys = partial ? tile.mask->seen_by(p, key) : KeyRange{0, kKeyTile};
    if (keys.count() <= 0) continue;
    const int64_t panel = p * o.padded * kPanel;
    float* s = scores + p * kPanel;
    float* ds = dscores + p * kPanel;
    score(key.k_by_key, keys, tile.q + panel, o, ahead, s, kQueryTile);
    cap_and_hide(*tile.mask, p, key, partial, keys, o, s, kQueryTile);
    score(key.v_by_key, keys, tile.dout + panel, o, ahead, ds, kQueryTile);  // dP^T = V dO^T
    if (partial) {
      softmax_backward<true>(tile, p, keys, o, s, ds);
    } else {
      softmax_backward<false>(tile, p, keys, o, s, ds);
    }
    add_weighted(key.k_by_element, keys, ds, kQueryTile, careful_key, o, ahead, tile.dq + panel);
    if (!partial) continue;
    // Panels see different keys.
    add_gradient(scores, keys, p * kPanel, kPanel, tile.dout_columns, careful_query, o, ahead,
                 key.dv);
    add_gradient(dscores, keys, p * kPanel, kPanel, tile.q_columns, careful_query, o, ahead,
                 key.dk);
  }
  if (partial) return;
  const KeyRange all{0, kKeyTile};
  add_gradient(scores, all, 0, kQueryTile, tile.dout_columns, false, o, ahead, key.dv);
  add_gradient(dscores, all, 0, kQueryTile, tile.q_columns, false, o, ahead, key.dk);
}

constexpr AttentionTileKernels kKernels = {
    forward_words, backward_words, shared_words,  pack,     load,
    forward,       store,          load_backward, backward, store_backward};

}  // namespace
}  // namespace odyssey
