// SPDX-License-Identifier: Apache-2.0
// Block attention backward on bf16 matrix tiles: five products for every 64 keys x 32 queries.
//
// For one chunk of keys and all query blocks of the call, S^T = K Q^T and dP^T = V dO^T are formed
// first, while vector code turns the square before into P and dS; then dV += P dO, dK += dS Q and
// dQ^T += K^T dS run over the whole chunk, so that their sums stay in tiles for long.
#include "odyssey/kernels/attention_backward_amx_squares.h"

namespace odyssey::amx {
namespace {

constexpr int64_t kMostTiles = 2;  // key tiles of one chunk: P and dS of 512 queries are 384 KiB
constexpr int64_t kMostParts = 2 * kMostTiles;

struct Memory {
  alignas(64) float dummy[1024];
  // S of this square and of the one before; dP leaves the tiles one square late, so one is enough.
  alignas(64) float s[2][1024];
  alignas(64) float dp[1024];
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
    return {memory_.s[n % 2],
            memory_.dp,
            memory_.p + at,
            memory_.ds + at,
            memory_.ds_pairs + (b * kMostParts + part) * 1024,
            &memory_.rows[b],
            keys_.position + key,
            keys_.segment + key,
            blocks_[b].seen[t] == Seen::kPart};
  }

  // P and dS of all visible squares of the chunk. A square's vector work comes one square after its
  // products: dP leaves the tiles in the first step of the next square, just before it is needed.
  void form_squares() {
    Square squares[2];
    int64_t n = 0;
    const float factor = shape_.scale * kLog2E;
    for (int64_t t = first_; t < last_; ++t) {
      for (int64_t half = 0; half < 2; ++half) {
        const int64_t rows = t * kKeys * shape_.padded() + half * 1024 * shape_.steps;
        for (int64_t b = 0; b < count_; ++b) {
          if (blocks_[b].seen[t] == Seen::kNone) continue;
          squares[n % 2] = square_of(t, b, half, n);
          const Row& row = memory_.rows[b];
          const Square* before = n >= 1 ? &squares[(n - 1) % 2] : nullptr;
          const bool beside = before != nullptr && !is_general(*before);
          const Scores j{shape_.steps,     keys_.k + rows, keys_.v + rows, row.q,  row.dout,
                         memory_.s[n % 2], memory_.dp,     before,         factor, ahead(n)};
          held_ = beside ? kernels_.scores_softmax(j, held_) : kernels_.scores(j, held_);
          if (before != nullptr && !beside) softmax_general(*before, shape_);
          ++n;
        }
      }
    }
    flush();
    if (n > 0) finish(squares[(n - 1) % 2], factor);
    fence();
  }
  bool is_general(const Square& x) const { return x.partial || shape_.soft_cap != 0; }
  void finish(const Square& x, float factor) const {
    if (is_general(x)) return softmax_general(x, shape_);
    const PlainSoftmax constants = plain_softmax(*x.row, factor);
    for (int64_t pair = 0; pair < 16; ++pair) softmax_pair(x, pair, constants);
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

  // Two blocks of queries at a time: the second one finds its part of K^T in L1.
  void add_to_dq() {
    fence();
    for (int64_t b = 0; b < count_; b += 2) {
      for (int64_t unit = 0; unit < shape_.steps; ++unit) {
        add_to_dq(b, unit);
        if (b + 1 < count_) add_to_dq(b + 1, unit);
      }
    }
    flush();
    for (int64_t b = 0; b < count_; ++b) {
      for (int64_t t = first_; t < last_; ++t) {
        if (blocks_[b].seen[t] != Seen::kNone) memory_.rows[b].dq_begun = true;
      }
    }
  }

  // 32 columns of the dq of one block of queries.
  void add_to_dq(int64_t b, int64_t unit) {
    int32_t k_at[kMostParts], ds_at[kMostParts];
    int64_t count = 0;
    for (int64_t t = first_; t < last_; ++t) {
      if (blocks_[b].seen[t] == Seen::kNone) continue;
      for (int64_t half = 0; half < 2; ++half) {
        const int64_t part = 2 * (t - first_) + half;
        k_at[count] = static_cast<int32_t>((t - first_) * kKeys * shape_.padded() + half * 512);
        ds_at[count++] = static_cast<int32_t>((b * kMostParts + part) * 1024);
      }
    }
    if (count == 0) return;
    const Row& row = memory_.rows[b];
    const uint16_t* k_t = keys_.k_t + first_ * kKeys * shape_.padded() + unit * 2048;
    held_ = add_products<false>({k_t, k_at, 1024, 64}, {memory_.ds_pairs, ds_at, 32, 128}, count,
                                row.dq_begun, {row.dq + unit * 1024, 512}, held_);
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
        const bool begun = keys_.begun[t];
        add_to(keys_.dv + to, memory_.p + square, memory_.rows[0].dout_pairs, at, count, begun);
        add_to(keys_.dk + to, memory_.ds + square, memory_.rows[0].q_pairs, at, count, begun);
      }
      keys_.begun[t] = true;
    }
    flush();
  }

  // Gradient of 32 keys += squares * rows of queries.
  void add_to(float* gradient, const uint16_t* squares, const uint16_t* pairs, const int32_t* at,
              int64_t count, bool begun) {
    for (int64_t unit = 0; unit < shape_.steps; ++unit) {
      held_ =
          add_products<true>({squares, at, 512, 64}, {pairs + unit * count_ * 1024, at, 512, 64},
                             count, begun, {gradient + unit * 512, 512 * shape_.steps}, held_);
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

// Packs block b, and meanwhile fetches the rows of the next one. dq and operands are those of all
// blocks.
void begin_block(const QueryBlock* blocks, int64_t count, int64_t b, const Shape& shape, float* dq,
                 uint16_t* operands, Row& row) {
  const QueryBlock& block = blocks[b];
  const int64_t words = kQueries * shape.padded();
  RowFetch fetch_q, fetch_dout;
  if (b + 1 < count) {
    const QueryBlock& next = blocks[b + 1];
    fetch_q = {next.q, next.q_stride, next.rows, shape};
    fetch_dout = {next.dout, next.dout_stride, next.rows, shape};
  }
  uint16_t* const q = operands + b * words;
  uint16_t* const dout = q + count * words;
  uint16_t* const q_pairs = operands + 2 * count * words + b * 1024;
  uint16_t* const dout_pairs = q_pairs + count * words;
  begin_row(block, row);
  pack_both(block.q, block.q_stride, block.rows, shape, count * 1024, fetch_q, q, q_pairs);
  pack_both(block.dout, block.dout_stride, block.rows, shape, count * 1024, fetch_dout, dout,
            dout_pairs);
  row.q = q;
  row.dout = dout;
  row.q_pairs = q_pairs;
  row.dout_pairs = dout_pairs;
  row.dq = dq + b * words;
  row.dq_begun = false;
}

}  // namespace

int64_t backward_chunk_tiles(const Shape&) {
  return kMostTiles;
}

void add_gradient(const float* packed, int64_t rows, const Shape& shape, float factor, bool fresh,
                  float* to, int64_t stride) {
  for (int64_t row = 0; row < rows; row += 16) {
    for (int64_t d = 0; d < shape.head_size; d += 16) {
      const float* from = packed + (row / 16 * shape.steps + d / 32) * 512 + d % 32;
      __m512 x[16];
      for (int64_t i = 0; i < 16; ++i) x[i] = _mm512_load_ps(from + i * 32);
      add_rows(x, rows - row, first16(shape.head_size - d), factor, fresh, to + row * stride + d,
               stride);
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
  float* dq = reinterpret_cast<float*>(&memory + 1);
  uint16_t* operands = reinterpret_cast<uint16_t*>(dq + count * kQueries * shape.padded());
  for (int64_t b = 0; b < count; ++b) {
    begin_block(blocks, count, b, shape, dq, operands, memory.rows[b]);
  }
  Pass(blocks, count, keys, shape, memory).run(turns);
  for (int64_t b = 0; b < count; ++b) end_row(blocks[b], shape, memory.rows[b]);
}

}  // namespace odyssey::amx
