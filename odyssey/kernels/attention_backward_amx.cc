// SPDX-License-Identifier: Apache-2.0
// Block attention backward on bf16 matrix tiles: five products for every 64 keys x 32 queries.
//
// For one chunk of keys and all query blocks of the call, S^T = K Q^T and dP^T = V dO^T are formed
// first, while vector code turns the pair before into P and dS; then dV += P dO, dK += dS Q and
// dQ^T += K^T dS run over the whole chunk, so that their sums stay in tiles for long.
#include "odyssey/kernels/attention_tile_amx_simd.h"

namespace odyssey::amx {
namespace {

constexpr int64_t kMostTiles = 2;  // key tiles of one chunk: P and dS of 512 queries are 384 KiB
constexpr int64_t kMostParts = 2 * kMostTiles;

struct alignas(64) Row {
  float lse[kQueries];  // times log2(e); 1e30, which gives P = 0, for rows that see nothing
  float delta[kQueries];
  MaskRows mask;
  const uint16_t *q, *dout;  // packed by pack_queries
  // Packed by pack_query_pairs, [steps][blocks][1024] for all blocks; the first row's is used.
  const uint16_t *q_pairs, *dout_pairs;
  float* dq;  // [padded][32], transposed, lacks the scale
};

// S and dP of 32 keys x 32 queries and what becomes of them.
struct Square {
  const float *s, *dp;  // [32][32]
  // P and dS as left operands, [2][16 keys][32 queries in the order 0, 16, 1, 17, ...]; dS as right
  // operand, [16 pairs of keys][32 queries][2].
  uint16_t *p, *ds, *ds_pairs;
  const Row* row;
  const int32_t *position, *segment;  // of the keys
  bool partial;
};

// Turns keys 2 * pair and 2 * pair + 1 of a square into P and dS.
ODYSSEY_INLINE void write_pair(const Square& x, int64_t pair, __m512 p00, __m512 p01, __m512 p10,
                               __m512 p11, __m512 d00, __m512 d01, __m512 d10, __m512 d11) {
  uint16_t* p = x.p + pair * 64;
  uint16_t* ds = x.ds + pair * 64;
  uint16_t* ds_pairs = x.ds_pairs + pair * 64;
  const __m512i up00 = rounded(d00), up01 = rounded(d01), up10 = rounded(d10), up11 = rounded(d11);
  const __m512i low00 = _mm512_srli_epi32(up00, 16), low01 = _mm512_srli_epi32(up01, 16);
  const __m512i low10 = _mm512_srli_epi32(up10, 16);
  _mm512_store_si512(p, pair_up(p00, p01));
  _mm512_store_si512(p + 32, pair_up(p10, p11));
  _mm512_store_si512(ds, halves(low00, up01));
  _mm512_store_si512(ds + 32, halves(low10, up11));
  _mm512_store_si512(ds_pairs, halves(low00, up10));
  _mm512_store_si512(ds_pairs + 32, halves(low01, up11));
}
ODYSSEY_INLINE void softmax_pair(const Square& x, int64_t pair, __m512 factor) {
  const float* s = x.s + pair * 64;
  const float* dp = x.dp + pair * 64;
  const __m512 lse0 = _mm512_load_ps(x.row->lse), lse1 = _mm512_load_ps(x.row->lse + 16);
  const __m512 delta0 = _mm512_load_ps(x.row->delta), delta1 = _mm512_load_ps(x.row->delta + 16);
  const __m512 p00 = exp2_fast(_mm512_fmsub_ps(_mm512_load_ps(s), factor, lse0));
  const __m512 p01 = exp2_fast(_mm512_fmsub_ps(_mm512_load_ps(s + 16), factor, lse1));
  const __m512 p10 = exp2_fast(_mm512_fmsub_ps(_mm512_load_ps(s + 32), factor, lse0));
  const __m512 p11 = exp2_fast(_mm512_fmsub_ps(_mm512_load_ps(s + 48), factor, lse1));
  const __m512 d00 = _mm512_mul_ps(p00, _mm512_sub_ps(_mm512_load_ps(dp), delta0));
  const __m512 d01 = _mm512_mul_ps(p01, _mm512_sub_ps(_mm512_load_ps(dp + 16), delta1));
  const __m512 d10 = _mm512_mul_ps(p10, _mm512_sub_ps(_mm512_load_ps(dp + 32), delta0));
  const __m512 d11 = _mm512_mul_ps(p11, _mm512_sub_ps(_mm512_load_ps(dp + 48), delta1));
  write_pair(x, pair, p00, p01, p10, p11, d00, d01, d10, d11);
}

// The same with soft cap and mask.
void softmax_square(const Square& x, const Shape& shape) {
  const bool capped = shape.soft_cap != 0;
  const __m512 scale = all(shape.scale), cap = all(shape.soft_cap);
  const __m512 inverse = all(capped ? 1 / shape.soft_cap : 0);
  for (int64_t pair = 0; pair < 16; ++pair) {
    __m512 p[4], d[4];
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t at = pair * 64 + i * 16, half = i & 1, key = pair * 2 + (i >> 1);
      __m512 s = _mm512_mul_ps(_mm512_load_ps(x.s + at), scale);
      __m512 slope = all(1);
      if (capped) {
        const __m512 tanh = tanh_exact(_mm512_mul_ps(s, inverse));
        s = _mm512_mul_ps(tanh, cap);
        slope = _mm512_fnmadd_ps(tanh, tanh, all(1));
      }
      const __m512 lse = _mm512_load_ps(x.row->lse + 16 * half);
      const __m512 delta = _mm512_load_ps(x.row->delta + 16 * half);
      const __mmask16 seen =
          x.partial ? see(x.row->mask, half, x.position[key], x.segment[key]) : __mmask16{0xffff};
      p[i] = _mm512_maskz_mov_ps(seen, exp2_fast(_mm512_fmsub_ps(s, all(kLog2E), lse)));
      const __m512 dp = _mm512_sub_ps(_mm512_load_ps(x.dp + at), delta);
      d[i] = _mm512_maskz_mul_ps(seen, _mm512_mul_ps(p[i], slope), dp);
    }
    write_pair(x, pair, p[0], p[1], p[2], p[3], d[0], d[1], d[2], d[3]);
  }
}

// Sums that are still in tiles, and where they belong: 32 x 32 words, the lower 16 rows at +below.
struct Held {
  float* to;
  int64_t below;
};
template <int kTile>
ODYSSEY_INLINE void store_one(const Held& held) {
  store_tile<kTile>(held.to + (kTile & 1) * 16 + (kTile >> 1) * held.below, 128);
}
ODYSSEY_INLINE void store_all(const Held& held) {
  store_one<0>(held);
  store_one<1>(held);
  store_one<2>(held);
  store_one<3>(held);
}

struct Scores {
  int64_t steps;
  const uint16_t *k, *v, *q, *dout;
  float *s, *dp;
  const Square* before;  // to be finished meanwhile
  float factor;
  const char* ahead;
};

template <int kPairs, bool kSoftmax>
ODYSSEY_INLINE void pairs_of_slot(const Scores& j, int64_t& pair, int slot, __m512 factor) {
  if constexpr (kSoftmax) {
    const int count = kPairs >= 2 ? kPairs / 2 : slot;
    if (pair < 16) {
#pragma GCC unroll 4
      for (int i = 0; i < count; ++i) softmax_pair(*j.before, pair + i, factor);
      pair += count;
    }
  }
}

// S and dP of 32 keys x 32 queries. Finishes kPairs key pairs of an older square a step.
template <int kPairs, bool kSoftmax>
__attribute__((noinline)) Held run_scores(const Scores& j, Held held) {
  fence();
  const __m512 factor = all(j.factor);
  int64_t pair = 0;
  const char* ahead = j.ahead;
  for (int product = 0; product < 2; ++product) {
    const uint16_t* a = product == 0 ? j.k : j.v;
    const uint16_t* a_below = a + 512 * j.steps;
    const uint16_t* b = product == 0 ? j.q : j.dout;
    stream_tile<4>(a, 64);
    load_tile<6>(b, 64);
    store_one<0>(held);
    zero_tile<0>();
    multiply<0, 4, 6>();
    load_tile<7>(b + 512, 64);
    store_one<1>(held);
    zero_tile<1>();
    multiply<1, 4, 7>();
    pairs_of_slot<kPairs, kSoftmax>(j, pair, 0, factor);
    stream_tile<5>(a_below, 64);
    store_one<2>(held);
    zero_tile<2>();
    multiply<2, 5, 6>();
    store_one<3>(held);
    zero_tile<3>();
    multiply<3, 5, 7>();
    pairs_of_slot<kPairs, kSoftmax>(j, pair, 1, factor);
    for (int64_t step = 1; step < j.steps; ++step) {
      a += 512;
      a_below += 512;
      b += 1024;
      stream_tile<4>(a, 64);
      load_tile<6>(b, 64);
      multiply<0, 4, 6>();
      load_tile<7>(b + 512, 64);
      multiply<1, 4, 7>();
      pairs_of_slot<kPairs, kSoftmax>(j, pair, 0, factor);
      stream_tile<5>(a_below, 64);
      multiply<2, 5, 6>();
      multiply<3, 5, 7>();
      pairs_of_slot<kPairs, kSoftmax>(j, pair, 1, factor);
      if (ahead != nullptr) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) _mm_prefetch(ahead + 64 * i, _MM_HINT_T1);
        ahead += 512;
      }
    }
    held = {product == 0 ? j.s : j.dp, 512};
  }
  fence();
  return held;
}

using RunScores = Held (*)(const Scores&, Held);
struct Kernels {
  RunScores scores, scores_softmax;
};
template <int kPairs>
constexpr Kernels kernels_of() {
  return {run_scores<kPairs, false>, run_scores<kPairs, true>};
}
const Kernels& kernels_for(int64_t steps) {
  static constexpr Kernels kTable[] = {kernels_of<8>(), kernels_of<4>(), kernels_of<4>(),
                                       kernels_of<2>(), kernels_of<2>(), kernels_of<2>(),
                                       kernels_of<2>(), kernels_of<1>()};
  return kTable[steps - 1];
}

// One side of a sum of products: operand tiles stand at `base` + at[i] and, the second one, at
// + next.
struct Operand {
  const uint16_t* base;
  const int32_t* at;
  int64_t next, stride;
};
template <int kTile, bool kKeep>
ODYSSEY_INLINE void operand_tile(const uint16_t* from, int64_t stride) {
  if constexpr (kKeep) {
    load_tile<kTile>(from, stride);
  } else {
    stream_tile<kTile>(from, stride);
  }
}
// C[32 x 32 words] += sum over i < count of A_i B_i. kKeepA: A is used again soon, else B is.
template <bool kKeepA>
ODYSSEY_INLINE Held add_products(const Operand& a, const Operand& b, int64_t count, Held c,
                                 Held held) {
  const uint16_t* x = a.base + a.at[0];
  const uint16_t* y = b.base + b.at[0];
  operand_tile<4, kKeepA>(x, a.stride);
  operand_tile<6, !kKeepA>(y, b.stride);
  store_one<0>(held);
  stream_tile<0>(c.to, 128);
  multiply<0, 4, 6>();
  operand_tile<7, !kKeepA>(y + b.next, b.stride);
  store_one<1>(held);
  stream_tile<1>(c.to + 16, 128);
  multiply<1, 4, 7>();
  operand_tile<5, kKeepA>(x + a.next, a.stride);
  store_one<2>(held);
  stream_tile<2>(c.to + c.below, 128);
  multiply<2, 5, 6>();
  store_one<3>(held);
  stream_tile<3>(c.to + c.below + 16, 128);
  multiply<3, 5, 7>();
  for (int64_t i = 1; i < count; ++i) {
    x = a.base + a.at[i];
    y = b.base + b.at[i];
    operand_tile<4, kKeepA>(x, a.stride);
    operand_tile<6, !kKeepA>(y, b.stride);
    multiply<0, 4, 6>();
    operand_tile<7, !kKeepA>(y + b.next, b.stride);
    multiply<1, 4, 7>();
    operand_tile<5, kKeepA>(x + a.next, a.stride);
    multiply<2, 5, 6>();
    multiply<3, 5, 7>();
  }
  return c;
}

struct Memory {
  alignas(64) float dummy[1024];
  alignas(64) float squares[3][2][1024];
  alignas(64) Row rows[kBackwardBlocks];
  // [part of 32 keys][block][1024], [block][part][1024]
  alignas(64) uint16_t p[kMostParts * kBackwardBlocks * 1024];
  alignas(64) uint16_t ds[kMostParts * kBackwardBlocks * 1024];
  alignas(64) uint16_t ds_pairs[kMostParts * kBackwardBlocks * 1024];
  // Then dq and the four packed operands of all blocks.
};

class Pass {
 public:
  Pass(const QueryBlock* blocks, int64_t count, const KeyHead& keys, const Shape& shape,
       Memory& memory)
      : blocks_(blocks),
        count_(count),
        keys_(keys),
        shape_(shape),
        memory_(memory),
        kernels_(kernels_for(shape.steps)),
        held_{memory.dummy, 512} {}

  void run(const Turns& turns) {
    const int64_t tiles = backward_chunk_tiles(shape_);
    for (int64_t chunk = 0; chunk * tiles < keys_.tiles; ++chunk) {
      first_ = chunk * tiles;
      last_ = first_ + tiles < keys_.tiles ? first_ + tiles : keys_.tiles;
      if (chunk_is_seen()) {
        form_squares();
        add_to_dq();
        turns.wait(turns.context, chunk);
        add_to_keys();
      }
      turns.done(turns.context, chunk);
    }
  }

 private:
  bool chunk_is_seen() const {
    for (int64_t b = 0; b < count_; ++b) {
      for (int64_t t = first_; t < last_; ++t) {
        if (blocks_[b].seen[t] != Seen::kNone) return true;
      }
    }
    return false;
  }

  Square square_of(int64_t t, int64_t b, int64_t half, int64_t n) const {
    const int64_t part = 2 * (t - first_) + half, key = t * kKeys + half * 32;
    const int64_t at = (part * kBackwardBlocks + b) * 1024;
    return {memory_.squares[n % 3][0],
            memory_.squares[n % 3][1],
            memory_.p + at,
            memory_.ds + at,
            memory_.ds_pairs + (b * kMostParts + part) * 1024,
            &memory_.rows[b],
            keys_.position + key,
            keys_.segment + key,
            blocks_[b].seen[t] == Seen::kPart};
  }

  // P and dS of all visible squares of the chunk. A square's vector work comes two squares after
  // its products: its last sums leave the tiles during the next square.
  void form_squares() {
    Square squares[3];
    int64_t n = 0;
    const float factor = shape_.scale * kLog2E;
    for (int64_t t = first_; t < last_; ++t) {
      for (int64_t half = 0; half < 2; ++half) {
        const int64_t rows = t * kKeys * shape_.padded() + half * 1024 * shape_.steps;
        for (int64_t b = 0; b < count_; ++b) {
          if (blocks_[b].seen[t] == Seen::kNone) continue;
          squares[n % 3] = square_of(t, b, half, n);
          const Row& row = memory_.rows[b];
          const Square* before = n >= 2 ? &squares[(n - 2) % 3] : nullptr;
          const bool beside = before != nullptr && !is_general(*before);
          const Scores j{shape_.steps,
                         keys_.k + rows,
                         keys_.v + rows,
                         row.q,
                         row.dout,
                         memory_.squares[n % 3][0],
                         memory_.squares[n % 3][1],
                         before,
                         factor,
                         ahead(n)};
          held_ = beside ? kernels_.scores_softmax(j, held_) : kernels_.scores(j, held_);
          if (before != nullptr && !beside) softmax_square(*before, shape_);
          ++n;
        }
      }
    }
    flush();
    for (int64_t i = n >= 2 ? n - 2 : 0; i < n; ++i) finish(squares[i % 3], factor);
    fence();
  }
  bool is_general(const Square& x) const { return x.partial || shape_.soft_cap != 0; }
  void finish(const Square& x, float factor) const {
    if (is_general(x)) return softmax_square(x, shape_);
    for (int64_t pair = 0; pair < 16; ++pair) softmax_pair(x, pair, all(factor));
  }
  void flush() {
    fence();
    store_all(held_);
    held_ = {memory_.dummy, 512};
    fence();
  }

  // The next chunk: k, v, k_t, dk, dv, a share a square.
  const char* ahead(int64_t n) const {
    const int64_t elements = backward_chunk_tiles(shape_) * kKeys * shape_.padded();
    if (last_ + backward_chunk_tiles(shape_) > keys_.tiles) return nullptr;
    const int64_t next = last_ * kKeys * shape_.padded(), bytes = 2 * elements;
    const char* const parts[] = {reinterpret_cast<const char*>(keys_.k + next),
                                 reinterpret_cast<const char*>(keys_.v + next),
                                 reinterpret_cast<const char*>(keys_.k_t + next),
                                 reinterpret_cast<const char*>(keys_.dk + next),
                                 reinterpret_cast<const char*>(keys_.dk + next) + bytes,
                                 reinterpret_cast<const char*>(keys_.dv + next),
                                 reinterpret_cast<const char*>(keys_.dv + next) + bytes};
    const int64_t at = n * 1024 * shape_.steps, part = at / bytes;
    return part < 7 ? parts[part] + at % bytes : nullptr;
  }

  void add_to_dq() {
    int32_t k_at[kMostParts], ds_at[kMostParts];
    fence();
    for (int64_t b = 0; b < count_; ++b) {
      int64_t count = 0;
      for (int64_t t = first_; t < last_; ++t) {
        if (blocks_[b].seen[t] == Seen::kNone) continue;
        for (int64_t half = 0; half < 2; ++half) {
          const int64_t part = 2 * (t - first_) + half;
          k_at[count] = static_cast<int32_t>((t - first_) * kKeys * shape_.padded() + half * 512);
          ds_at[count++] = static_cast<int32_t>((b * kMostParts + part) * 1024);
        }
      }
      if (count == 0) continue;
      for (int64_t unit = 0; unit < shape_.steps; ++unit) {
        const uint16_t* k_t = keys_.k_t + first_ * kKeys * shape_.padded() + unit * 2048;
        held_ = add_products<false>({k_t, k_at, 1024, 64}, {memory_.ds_pairs, ds_at, 32, 128},
                                    count, {memory_.rows[b].dq + unit * 1024, 512}, held_);
      }
    }
    flush();
  }

  void add_to_keys() {
    const int64_t steps = shape_.steps;
    int32_t at[kBackwardBlocks];  // the same in squares and in query pairs
    fence();
    for (int64_t t = first_; t < last_; ++t) {
      int64_t count = 0;
      for (int64_t b = 0; b < count_; ++b) {
        if (blocks_[b].seen[t] == Seen::kNone) continue;
        at[count++] = static_cast<int32_t>(b * 1024);
      }
      if (count == 0) continue;
      for (int64_t half = 0; half < 2; ++half) {
        const int64_t square = (2 * (t - first_) + half) * kBackwardBlocks * 1024;
        const int64_t to = t * kKeys * shape_.padded() + half * 1024 * steps;
        add_to(keys_.dv + to, memory_.p + square, memory_.rows[0].dout_pairs, at, count);
        add_to(keys_.dk + to, memory_.ds + square, memory_.rows[0].q_pairs, at, count);
      }
    }
    flush();
  }

  // Gradient of 32 keys += squares * rows of queries.
  void add_to(float* gradient, const uint16_t* squares, const uint16_t* pairs, const int32_t* at,
              int64_t count) {
    for (int64_t unit = 0; unit < shape_.steps; ++unit) {
      held_ =
          add_products<true>({squares, at, 512, 64}, {pairs + unit * count_ * 1024, at, 512, 64},
                             count, {gradient + unit * 512, 512 * shape_.steps}, held_);
    }
  }

  const QueryBlock* blocks_;
  int64_t count_;
  const KeyHead& keys_;
  const Shape& shape_;
  Memory& memory_;
  const Kernels& kernels_;
  Held held_;
  int64_t first_ = 0, last_ = 0;  // key tiles of the chunk
};

void begin_row(const QueryBlock& block, Row& row) {
  fill_mask(block, row.mask);
  for (int64_t i = 0; i < kQueries; ++i) {
    const bool sees = i < block.rows && block.max[i] > kNothing;
    row.lse[i] = sees ? block.max[i] * kLog2E : -kNothing;
    row.delta[i] = sees ? block.sum[i] : 0;
  }
}

// dq rows += scale * dq of the call.
void end_row(const QueryBlock& block, const Shape& shape, const Row& row) {
  const __m512 scale = all(shape.scale);
  for (int64_t d = 0; d < shape.head_size; d += 16) {
    const __mmask16 columns = first16(shape.head_size - d);
    for (int64_t half = 0; half < 32 && half < block.rows; half += 16) {
      __m512i r[16];
      for (int64_t i = 0; i < 16; ++i) r[i] = _mm512_load_si512(row.dq + (d + i) * 32 + half);
      transpose16(r);
      for (int64_t i = 0; i < 16 && half + i < block.rows; ++i) {
        float* to = block.accumulator + (half + i) * block.accumulator_stride + d;
        const __m512 before = _mm512_maskz_loadu_ps(columns, to);
        const __m512 x = _mm512_castsi512_ps(r[i]);
        _mm512_mask_storeu_ps(to, columns, _mm512_fmadd_ps(x, scale, before));
      }
    }
  }
}

}  // namespace

int64_t backward_chunk_tiles(const Shape&) {
  return kMostTiles;
}

void add_gradient(const float* packed, int64_t rows, const Shape& shape, float factor, float* to,
                  int64_t stride) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t d = 0; d < shape.head_size; d += 16) {
      const __mmask16 columns = first16(shape.head_size - d);
      const float* from = packed + (row / 16 * shape.steps + d / 32) * 512 + row % 16 * 32 + d % 32;
      float* out = to + row * stride + d;
      const __m512 before = _mm512_maskz_loadu_ps(columns, out);
      _mm512_mask_storeu_ps(out, columns,
                            _mm512_fmadd_ps(_mm512_load_ps(from), all(factor), before));
    }
  }
}

int64_t backward_bytes(const Shape& shape, int64_t blocks) {
  return static_cast<int64_t>(sizeof(Memory)) + blocks * kQueries * shape.padded() * 12;
}

void backward(const QueryBlock* blocks, int64_t count, const KeyHead& keys, const Shape& shape,
              const Turns& turns, void* scratch) {
  const Tiles tiles;
  Memory& memory = *static_cast<Memory*>(scratch);
  const int64_t words = kQueries * shape.padded();
  float* dq = reinterpret_cast<float*>(&memory + 1);
  uint16_t* operands = reinterpret_cast<uint16_t*>(dq + count * words);
  for (int64_t i = 0; i < count * words; i += 16) _mm512_store_ps(dq + i, _mm512_setzero_ps());
  for (int64_t b = 0; b < count; ++b) {
    const QueryBlock& block = blocks[b];
    Row& row = memory.rows[b];
    begin_row(block, row);
    uint16_t* const q = operands + b * words;
    uint16_t* const dout = q + count * words;
    uint16_t* const q_pairs = operands + 2 * count * words + b * 1024;
    uint16_t* const dout_pairs = q_pairs + count * words;
    pack_queries(block.q, block.q_stride, block.rows, shape, q);
    pack_queries(block.dout, block.dout_stride, block.rows, shape, dout);
    pack_query_pairs(block.q, block.q_stride, block.rows, shape, count * 1024, q_pairs);
    pack_query_pairs(block.dout, block.dout_stride, block.rows, shape, count * 1024, dout_pairs);
    row.q = q;
    row.dout = dout;
    row.q_pairs = q_pairs;
    row.dout_pairs = dout_pairs;
    row.dq = dq + b * words;
  }
  Pass(blocks, count, keys, shape, memory).run(turns);
  for (int64_t b = 0; b < count; ++b) end_row(blocks[b], shape, memory.rows[b]);
}

}  // namespace odyssey::amx
