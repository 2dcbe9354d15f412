// SPDX-License-Identifier: Apache-2.0
// The inner contract of bf16 block attention on matrix tiles: how operands are packed and what the
// files with intrinsics supply. Plain pointers only; see attention_tile.h for why.
//
// Everything is computed transposed, S^T = K Q^T: rows are keys, lanes are queries. The unit of
// masks is 64 keys by 32 queries. Head sizes are padded with zeros to multiples of 32.
#pragma once
#include <cstdint>

namespace odyssey::amx {

inline constexpr int64_t kQueries = 32;  // rows of a query block: two tiles of 16 lanes
inline constexpr int64_t kKeys = 64;     // rows of a key tile: four tiles of 16 rows
// Query blocks of one call, which use the same keys while these are in L2 (2 MiB). At head size
// 128, forward: Q and accumulators are 384 KiB; backward: four forms of operands, dQ, P and dS are
// 1152 KiB.
inline constexpr int64_t kForwardBlocks = 16;
inline constexpr int64_t kBackwardBlocks = 16;

enum class Seen : uint8_t { kNone, kPart, kAll };

struct Shape {
  int64_t head_size;
  int64_t steps;  // padded head size / 32, at most 8
  float scale, soft_cap;
  bool record_max = false;  // forward: QueryBlock::max is to be the largest score
  int64_t padded() const { return 32 * steps; }
};

// All key tiles of one key/value head. Rows behind the end are zeros with segment 0.
struct KeyHead {
  const uint16_t *k, *v;  // k: rows; v: transposed forward, rows backward; 64 * padded a tile
  const uint16_t* k_t;    // backward only: k transposed
  const int32_t *position, *segment;
  // Backward only: fp32, 64 * padded a tile; dk lacks the scale. begun: of each tile, whether the
  // two hold anything; they are added to then, and written otherwise.
  float *dk, *dv;
  bool* begun;
  int64_t tiles;
};

// Up to 32 queries of one head. Row i of an operand stands at +i * stride elements.
struct QueryBlock {
  const uint16_t *q, *dout;  // dout: backward only
  int64_t q_stride, dout_stride;
  int64_t rows;
  const int32_t *least, *most, *segment;
  // Forward: the running softmax; max is what sum and accumulator are relative to. Backward: max
  // holds lse, sum holds delta; they are only read.
  float *max, *sum;
  float* accumulator;  // backward: dq
  int64_t accumulator_stride;
  bool fresh;     // backward: dq is written, not added to
  uint16_t* out;  // forward: written instead of the accumulator, if not null
  int64_t out_stride;
  const Seen* seen;  // of each key tile
};

// What the forward asks of its caller when a block has `out`: what to multiply its 32 rows by, now
// that its max and sum are those of the whole call.
struct Finish {
  void (*factors)(void* context, int64_t block, float* factors);
  void* context;
};

// What the backward asks of its caller when several threads add to the same dK and dV.
struct Turns {
  void (*wait)(void* context, int64_t chunk);  // until it is this call's turn to add to the chunk
  void (*done)(void* context, int64_t chunk);
  void* context;
};

// Key tiles that are worked on together: their products with V (or dQ) share one sum in registers.
int64_t chunk_tiles(const Shape& shape);
int64_t backward_chunk_tiles(const Shape& shape);

// Packing: 64 rows, or 32 where it says so, fewer at the end of the operand.
void pack_rows(const uint16_t* from, int64_t stride, int64_t rows, const Shape& shape,
               uint16_t* to);
void pack_transposed(const uint16_t* from, int64_t stride, int64_t rows, const Shape& shape,
                     uint16_t* to);
// to[i] += factor * packed gradient, or = where it is fresh: 64 rows of a key tile.
void add_gradient(const float* packed, int64_t rows, const Shape& shape, float factor, bool fresh,
                  float* to, int64_t stride);

// Bytes of scratch, 64-byte aligned, for `blocks` query blocks.
int64_t forward_bytes(const Shape& shape, int64_t blocks);
int64_t backward_bytes(const Shape& shape, int64_t blocks);
// Attend `count` query blocks to all keys of their head.
void forward(const QueryBlock* blocks, int64_t count, const KeyHead& keys, const Shape& shape,
             const Finish& finish, void* scratch);
void backward(const QueryBlock* blocks, int64_t count, const KeyHead& keys, const Shape& shape,
              const Turns& turns, void* scratch);

}  // namespace odyssey::amx
