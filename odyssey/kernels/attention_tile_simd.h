// SPDX-License-Identifier: Apache-2.0
// Block attention on one tile of queries, written once with compiler vectors of ODYSSEY_LANES
// floats. Included by attention_tile_{portable,avx2,avx512}.cc, each compiled with its own flags;
// everything is in an anonymous namespace, so no instance can leak into code for a lesser machine.
#pragma once
#include <cstdint>
#include <cstring>

#include "odyssey/kernels/attention_tile.h"

#ifndef ODYSSEY_LANES
#error "define ODYSSEY_LANES (4, 8 or 16) before including this file"
#endif

namespace odyssey {
namespace {

constexpr int kLanes = ODYSSEY_LANES;
typedef float Vector __attribute__((vector_size(kLanes * 4)));
typedef int32_t IntVector __attribute__((vector_size(kLanes * 4)));

inline Vector load(const float* p) {
  Vector v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
inline IntVector load(const int32_t* p) {
  IntVector v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
inline void store(float* p, Vector v) {
  std::memcpy(p, &v, sizeof(v));
}
inline Vector broadcast(float x) {
  return x - Vector{};
}
inline Vector greater(Vector a, Vector b) {
  return a > b ? a : b;
}

// e^x for x <= 88, relative error below 2e-7; below -87 the smallest normal number.
// Cody-Waite reduction to |f| <= ln(2)/2, then a degree-6 polynomial (minimax, as in Cephes expf).
inline Vector exponential(Vector x) {
  x = greater(x, broadcast(-87.3f));
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const Vector magic = broadcast(12582912.0f);
  const Vector shifted = x * 1.44269504088896341f + magic;
  const Vector n = shifted - magic;
  Vector f = x - n * 0.693359375f;
  f = f - n * -2.12194440e-4f;
  Vector p = f * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * f + 8.3334519073e-3f;
  p = p * f + 4.1665795894e-2f;
  p = p * f + 1.6666665459e-1f;
  p = p * f + 5.0000001201e-1f;
  p = p * (f * f) + f + 1.0f;
  IntVector bits, integer;
  std::memcpy(&bits, &p, sizeof(p));
  std::memcpy(&integer, &shifted, sizeof(p));
  bits += integer << 23;
  std::memcpy(&p, &bits, sizeof(p));
  return p;
}

// c * tanh(x / c) through exp: tanh(y) = 1 - 2 / (e^2y + 1).
inline Vector soft_cap(Vector x, float cap, float inverse_cap) {
  Vector y = x * inverse_cap;
  y = y > broadcast(40.0f) ? broadcast(40.0f) : y;
  return cap - (2.0f * cap) / (exponential(y + y) + 1.0f);
}

// C[i][0..N) += or = sum over r of A(i, r) * B[r][0..N) for kRows rows and N = kVectors * kLanes.
// A is read by element, with any strides; rows of B and C are contiguous.
template <int kRows, int kVectors, bool kAccumulate>
inline __attribute__((always_inline)) void multiply_tile(const float* a, int64_t a_row, int64_t a_r,
                                                         const float* b, int64_t b_row, float* c,
                                                         int64_t c_row, int64_t depth) {
  Vector sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kVectors; ++j) {
      sum[i][j] = kAccumulate ? load(c + i * c_row + j * kLanes) : Vector{};
    }
  }
  for (int64_t r = 0; r < depth; ++r) {
    Vector row[kVectors];
#pragma GCC unroll 16
    for (int j = 0; j < kVectors; ++j) row[j] = load(b + r * b_row + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const Vector scalar = broadcast(a[i * a_row + r * a_r]);
#pragma GCC unroll 16
      for (int j = 0; j < kVectors; ++j) sum[i][j] += scalar * row[j];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kVectors; ++j) store(c + i * c_row + j * kLanes, sum[i][j]);
  }
}

// Rows of a register tile: 8 x 3 accumulators fill the 32 registers of AVX-512, 4 x 3 the 16 of
// others.
constexpr int kTileRows = kLanes == 16 ? 8 : 4;

// The whole product: rows a multiple of 16, columns a multiple of 16, depth any.
template <bool kAccumulate>
void multiply(int64_t rows, int64_t columns, int64_t depth, const float* a, int64_t a_row,
              int64_t a_r, const float* b, int64_t b_row, float* c, int64_t c_row) {
  const int64_t vectors = columns / kLanes;
  for (int64_t j = 0; j < vectors;) {
    const int64_t left = vectors - j;
    const int64_t take = left >= 3 ? 3 : left;
    const float* bj = b + j * kLanes;
    float* cj = c + j * kLanes;
    for (int64_t i = 0; i < rows; i += kTileRows) {
      const float* ai = a + i * a_row;
      float* ci = cj + i * c_row;
      if (take == 3) {
        multiply_tile<kTileRows, 3, kAccumulate>(ai, a_row, a_r, bj, b_row, ci, c_row, depth);
      } else if (take == 2) {
        multiply_tile<kTileRows, 2, kAccumulate>(ai, a_row, a_r, bj, b_row, ci, c_row, depth);
      } else {
        multiply_tile<kTileRows, 1, kAccumulate>(ai, a_row, a_r, bj, b_row, ci, c_row, depth);
      }
    }
    j += take;
  }
}

inline float element(const void* data, int64_t index, bool is_bf16) {
  if (!is_bf16) return static_cast<const float*>(data)[index];
  const uint32_t word = static_cast<uint32_t>(static_cast<const uint16_t*>(data)[index]) << 16;
  float value;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

// out[i][d] = factor * in[i][d], zeros where either ends; rows of `padded` words, kQueryTile rows.
void pack_rows(const void* in, int64_t stride, int64_t rows, const TileOptions& o, float factor,
               float* out) {
  std::memset(out, 0, kQueryTile * o.padded * sizeof(float));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t d = 0; d < o.head_size; ++d) {
      out[i * o.padded + d] = factor * element(in, i * stride + d, o.is_bf16);
    }
  }
}

// out[d][i] = in[i][d].
void transpose(const float* in, int64_t rows, int64_t columns, float* out) {
  for (int64_t i = 0; i < rows; i += 8) {
    for (int64_t d = 0; d < columns; ++d) {
      for (int64_t lane = 0; lane < 8; ++lane)
        out[d * rows + i + lane] = in[(i + lane) * columns + d];
    }
  }
}

// The mask of the queries of a tile, with rows behind the end seeing nothing.
struct Lanes {
  int32_t least[kQueryTile], most[kQueryTile], segment[kQueryTile];

  explicit Lanes(const QueryTile& q) {
    for (int64_t i = 0; i < kQueryTile; ++i) {
      least[i] = i < q.rows ? q.least[i] : 1;
      most[i] = i < q.rows ? q.most[i] : 0;
      segment[i] = i < q.rows ? q.segment[i] : 0;
    }
  }
  // All ones in the lanes [i, i + kLanes) that see the key.
  IntVector see(int64_t i, int32_t position, int32_t key_segment) const {
    const IntVector at = position - IntVector{};
    return (at >= load(least + i)) & (at <= load(most + i)) & (load(segment + i) == key_segment) &
           (load(segment + i) != 0);
  }
};

// Scores of hidden pairs: far below kNothingSeen, so that exp(hidden - max) is as good as 0.
constexpr float kHidden = -3e38f;

void cap_and_mask(float* scores, const KeyTile& key, bool partial, const Lanes& lanes,
                  const TileOptions& o) {
  if (o.soft_cap != 0) {
    const float inverse = 1.0f / o.soft_cap;
    for (int64_t at = 0; at < kKeyTile * kQueryTile; at += kLanes) {
      store(scores + at, soft_cap(load(scores + at), o.soft_cap, inverse));
    }
  }
  if (!partial) return;
  for (int64_t j = 0; j < kKeyTile; ++j) {
    for (int64_t i = 0; i < kQueryTile; i += kLanes) {
      float* s = scores + j * kQueryTile + i;
      const IntVector seen = lanes.see(i, key.position[j], key.segment[j]);
      store(s, seen ? load(s) : broadcast(kHidden));
    }
  }
}

// Turns scores of one key tile into exp(score - max) and brings max, sum and accumulator up to
// date.
void online_softmax(float* scores, float* max, float* sum, float* accumulator, int64_t padded) {
  for (int64_t i = 0; i < kQueryTile; i += kLanes) {
    Vector most = load(scores + i);
    for (int64_t j = 1; j < kKeyTile; ++j) most = greater(most, load(scores + j * kQueryTile + i));
    const Vector before = load(max + i);
    const Vector now = greater(before, most);
    const IntVector moved = now > before;
    int32_t any = 0;
    for (int lane = 0; lane < kLanes; ++lane) any |= moved[lane];
    if (any != 0) {
      const Vector shrink = exponential(before - now);
      store(max + i, now);
      store(sum + i, load(sum + i) * shrink);
      for (int64_t d = 0; d < padded; ++d) {
        store(accumulator + d * kQueryTile + i, load(accumulator + d * kQueryTile + i) * shrink);
      }
    }
    Vector total = load(sum + i);
    for (int64_t j = 0; j < kKeyTile; ++j) {
      float* s = scores + j * kQueryTile + i;
      const Vector score = load(s);
      // A row that has seen nothing yet has max = kNothingSeen: a hidden score must still give 0.
      const Vector p = score > broadcast(-2e38f) ? exponential(score - now) : Vector{};
      store(s, p);
      total += p;
    }
    store(sum + i, total);
  }
}

int64_t scratch_words(int64_t padded) {
  return 6 * kQueryTile * padded + 2 * kKeyTile * kQueryTile + 4 * kQueryTile;
}

void forward(const QueryTile& q, const KeyTileList& keys, const TileOptions& o, float* scratch) {
  float* rows = scratch;
  float* q_t = rows + kQueryTile * o.padded;            // [padded][96], scaled
  float* accumulator = q_t + kQueryTile * o.padded;     // [padded][96]
  float* scores = accumulator + kQueryTile * o.padded;  // [64][96]
  float* max = scores + kKeyTile * kQueryTile;
  float* sum = max + kQueryTile;
  const Lanes lanes(q);

  pack_rows(q.q, q.q_stride, q.rows, o, o.scale, rows);
  transpose(rows, kQueryTile, o.padded, q_t);
  TileOptions plain = o;
  plain.is_bf16 = false;
  pack_rows(q.accumulator, q.accumulator_stride, q.rows, plain, 1.0f, rows);
  transpose(rows, kQueryTile, o.padded, accumulator);
  for (int64_t i = 0; i < kQueryTile; ++i) {
    max[i] = i < q.rows ? q.max[i] : -1e30f;
    sum[i] = i < q.rows ? q.sum[i] : 0.0f;
  }

  for (int64_t t = 0; t < keys.count; ++t) {
    const KeyTile& key = keys.tiles[t];
    multiply<false>(kKeyTile, kQueryTile, o.padded, key.k, o.padded, 1, q_t, kQueryTile, scores,
                    kQueryTile);
    cap_and_mask(scores, key, keys.partial[t], lanes, o);
    online_softmax(scores, max, sum, accumulator, o.padded);
    // O^T += V^T P
    multiply<true>(o.padded, kQueryTile, kKeyTile, key.v, 1, o.padded, scores, kQueryTile,
                   accumulator, kQueryTile);
  }

  for (int64_t i = 0; i < q.rows; ++i) {
    q.max[i] = max[i];
    q.sum[i] = sum[i];
    for (int64_t d = 0; d < o.head_size; ++d) {
      q.accumulator[i * q.accumulator_stride + d] = accumulator[d * kQueryTile + i];
    }
  }
}

// scores <- P = exp(S - lse), dscores <- dS = P (dP - delta), times the derivative of the soft cap.
void softmax_backward(float* scores, float* dscores, const float* lse, const float* delta,
                      const TileOptions& o) {
  const float inverse = o.soft_cap != 0 ? 1.0f / o.soft_cap : 0.0f;
  for (int64_t j = 0; j < kKeyTile; ++j) {
    for (int64_t i = 0; i < kQueryTile; i += kLanes) {
      float* s = scores + j * kQueryTile + i;
      float* ds = dscores + j * kQueryTile + i;
      const Vector score = load(s);
      const Vector p = score > broadcast(-2e38f) ? exponential(score - load(lse + i)) : Vector{};
      Vector d = p * (load(ds) - load(delta + i));
      if (o.soft_cap != 0) {
        const Vector tanh = score * inverse;
        d = p != Vector{} ? d * (1.0f - tanh * tanh) : Vector{};
      }
      store(s, p);
      store(ds, d);
    }
  }
}

void backward(const QueryTile& q, const KeyTileList& keys, const TileOptions& o, float* scratch) {
  const int64_t tile = kQueryTile * o.padded;
  float* q_rows = scratch;      // [96][padded], scaled: dK = dS^T (scale Q)
  float* q_t = q_rows + tile;   // [padded][96]
  float* dout = q_t + tile;     // [96][padded]
  float* dout_t = dout + tile;  // [padded][96]
  float* dq = dout_t + tile;    // [96][padded]
  float* scores = dq + tile;    // [64][96]
  float* dscores = scores + kKeyTile * kQueryTile;
  float* lse = dscores + kKeyTile * kQueryTile;
  float* delta = lse + kQueryTile;
  const Lanes lanes(q);

  pack_rows(q.q, q.q_stride, q.rows, o, o.scale, q_rows);
  transpose(q_rows, kQueryTile, o.padded, q_t);
  pack_rows(q.dout, q.dout_stride, q.rows, o, 1.0f, dout);
  transpose(dout, kQueryTile, o.padded, dout_t);
  std::memset(dq, 0, tile * sizeof(float));
  for (int64_t i = 0; i < kQueryTile; ++i) {
    // A row that sees nothing has lse = -inf and only hidden scores: any finite number serves.
    lse[i] = i < q.rows && q.max[i] > -1e30f ? q.max[i] : 0.0f;
    delta[i] = i < q.rows ? q.sum[i] : 0.0f;
  }

  for (int64_t t = 0; t < keys.count; ++t) {
    const KeyTile& key = keys.tiles[t];
    multiply<false>(kKeyTile, kQueryTile, o.padded, key.k, o.padded, 1, q_t, kQueryTile, scores,
                    kQueryTile);
    cap_and_mask(scores, key, keys.partial[t], lanes, o);
    // dP^T = V dO^T
    multiply<false>(kKeyTile, kQueryTile, o.padded, key.v, o.padded, 1, dout_t, kQueryTile, dscores,
                    kQueryTile);
    softmax_backward(scores, dscores, lse, delta, o);
    // dV += P^T dO, dK += dS^T Q, dQ += dS K
    multiply<true>(kKeyTile, o.padded, kQueryTile, scores, kQueryTile, 1, dout, o.padded, key.dv,
                   o.padded);
    multiply<true>(kKeyTile, o.padded, kQueryTile, dscores, kQueryTile, 1, q_rows, o.padded, key.dk,
                   o.padded);
    multiply<true>(kQueryTile, o.padded, kKeyTile, dscores, 1, kQueryTile, key.k, o.padded, dq,
                   o.padded);
  }

  for (int64_t i = 0; i < q.rows; ++i) {
    for (int64_t d = 0; d < o.head_size; ++d) {
      q.accumulator[i * q.accumulator_stride + d] += o.scale * dq[i * o.padded + d];
    }
  }
}

}  // namespace
}  // namespace odyssey
