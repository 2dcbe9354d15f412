// SPDX-License-Identifier: Apache-2.0
// Attention of 96 queries to 64 keys, written once for vectors of ODYSSEY_LANES floats. Included by
// attention_tile_{portable,avx2,avx512}.cc, each compiled with its own flags.
//
// Queries stand in panels of three vectors. Per panel and key tile, at head size 128 and 16 lanes:
// the panel of Q^T (24 KiB) or of P (12 KiB) stays in L1 and is multiplied with K or V, which
// stream by in the order in which they were packed.
#pragma once
#include "odyssey/kernels/attention_tile_products.h"

namespace odyssey {
namespace {

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
  bool fresh = true;
  for (int64_t i = 0; i < kQueryTile; ++i) {
    tile.max[i] = tile.reference[i] = i < q.rows ? q.max[i] : kNothing;
    tile.sum[i] = i < q.rows ? q.sum[i] : 0.0f;
    fresh = fresh && tile.max[i] == kNothing;
  }
  if (fresh) {  // nothing seen, so the accumulator is 0
    std::memset(tile.accumulator, 0, static_cast<size_t>(kQueryTile * o.padded) * sizeof(float));
    return;
  }
  TileOptions plain = o;
  plain.is_bf16 = false;
  load_queries(q.accumulator, q.accumulator_stride, q.rows, plain, 1, tile.accumulator, nullptr);
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

// The backward pass.
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
    tile.lse[i] = i < q.rows && q.max[i] > kNothing ? q.max[i] : 0.0f;
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
