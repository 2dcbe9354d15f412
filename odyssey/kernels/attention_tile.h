// SPDX-License-Identifier: Apache-2.0
// The inner contract of block attention: what one instruction set has to supply. Plain pointers
// only, because the files behind it are compiled with instruction-set flags and may hold no library
// code.
//
// Everything is computed transposed, S^T = K Q^T: rows are keys, lanes are queries, so softmax,
// rescaling and masks are vertical operations (kernels work on 96 queries by 64 keys at a time).
#pragma once
#include <cstdint>

namespace odyssey {

inline constexpr int64_t kQueryTile = 96;  // 2 x 3 vectors of 16 lanes, 4 x 3 of 8, 8 x 3 of 4
inline constexpr int64_t kKeyTile = 64;    // a tile of K and V of head size 128 is 64 KiB of fp32
// Head sizes are padded with zeros to whole vectors of the widest instruction set.
inline int64_t padded_head_size(int64_t head_size) {
  return (head_size + 15) / 16 * 16;
}

// 96 queries of one head, or fewer at the end of the block.
struct QueryTile {
  // Operands, row i at +i * stride elements of the storage type.
  const void* q;
  const void* dout;  // backward only
  int64_t q_stride, dout_stride;
  int64_t rows;
  // Visible interval and segment of each row.
  const int32_t *least, *most, *segment;
  // Forward: the running softmax. Backward: max holds lse, sum holds delta.
  float *max, *sum;
  // Forward: accumulator. Backward: dq.
  float* accumulator;
  int64_t accumulator_stride;
};

// 64 keys of one key/value head, packed to fp32 rows of the padded head size; rows behind the end
// of the block are zeros with segment 0.
struct KeyTile {
  const float *k, *v;
  const int32_t *position, *segment;
  float *dk, *dv;  // backward: fp32 rows of the padded head size, added to
};

struct TileOptions {
  int64_t head_size, padded;
  float scale, soft_cap;
  bool is_bf16;  // storage type of q and dout, else fp32
};

// Key tiles that a query tile sees, in order; `partial[t]` says that its pairs must be asked
// singly.
struct KeyTileList {
  const KeyTile* tiles;
  const bool* partial;
  int64_t count;
};

struct AttentionTileKernels {
  // fp32 words that one call needs as scratch, 64-byte aligned.
  int64_t (*scratch_words)(int64_t padded_head_size);
  void (*forward)(const QueryTile&, const KeyTileList&, const TileOptions&, float* scratch);
  void (*backward)(const QueryTile&, const KeyTileList&, const TileOptions&, float* scratch);
};

extern const AttentionTileKernels kAttentionTilesPortable;
#if defined(__x86_64__)
extern const AttentionTileKernels kAttentionTilesAvx2;
extern const AttentionTileKernels kAttentionTilesAvx512;
#endif

}  // namespace odyssey
