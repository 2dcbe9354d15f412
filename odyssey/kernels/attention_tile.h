// SPDX-License-Identifier: Apache-2.0
// The inner contract of fp32 block attention: what one instruction set has to supply. Plain
// pointers only, because the files behind it are compiled with instruction-set flags and may hold
// no library code.
//
// Everything is computed transposed, S^T = K Q^T: rows are keys, lanes are queries, so softmax,
// rescaling and masks are vertical operations. The unit of work is a pair: 96 queries of one head
// and 64 keys, 12.6 million operations forward at head size 128. load() brings a tile of queries
// into scratch, forward() or backward() attends it to one key tile after the other, store() takes
// the result out.
#pragma once
#include <cstdint>

namespace odyssey {

inline constexpr int64_t kQueryTile = 96;  // 2 panels of 3 vectors of 16 lanes, 4 of 8, 8 of 4
inline constexpr int64_t kKeyTile = 64;    // P of 48 queries takes 12 KiB, a quarter of L1
inline constexpr int64_t kStrip = 16;      // a multiple of all vectors and register tiles
// Head sizes are padded with zeros to whole strips.
inline int64_t padded_head_size(int64_t head_size) {
  return (head_size + kStrip - 1) / kStrip * kStrip;
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
  // Forward: the running softmax. Backward: max holds lse, sum holds delta; they are only read.
  float *max, *sum;
  // Forward: accumulator. Backward: dq, added to.
  float* accumulator;
  int64_t accumulator_stride;
};

// 64 keys of one key/value head. K and V are packed to fp32 in the order in which a product reads
// them, with zeros behind the ends; rows behind the end of the block have segment 0.
//   by key:     key 16 s + i, element d stands at [s][d][i] of [4][padded][16]
//   by element: key j, element 16 s + i stands at [s][j][i] of [padded / 16][64][16]
struct KeyTile {
  const float* k_by_key;      // S^T = K Q^T
  const float* v_by_key;      // backward: dP^T = V dO^T
  const float* v_by_element;  // forward: O^T += V^T P^T
  const float* k_by_element;  // backward: dQ^T += K^T dS^T
  const int32_t *position, *segment;
  float *dk, *dv;  // backward: [64][padded], added to
  bool finite;     // no NaN or infinity in K and V
};

// Memory that the next pairs will read: a kernel asks for it to be brought to L2 while it computes.
struct Ahead {
  const float* at;
  int64_t lines;  // of 16 floats
};

struct TileOptions {
  int64_t head_size, padded;
  float scale, soft_cap;
  bool is_bf16;  // storage type of q, k, v and dout, else fp32
};

struct AttentionTileKernels {
  // fp32 words of scratch, 64-byte aligned: of one query tile between load and store, and of what
  // the pairs of a thread share.
  int64_t (*forward_words)(int64_t padded);
  int64_t (*backward_words)(int64_t padded);
  int64_t (*shared_words)();
  // Packs up to 64 rows of K or V in either form, or in one where the other is null. Returns
  // whether all are finite.
  bool (*pack)(const void* from, int64_t stride, int64_t rows, const TileOptions&, float* by_key,
               float* by_element);

  void (*load)(const QueryTile&, const TileOptions&, float* tile);
  // `partial`: some pair may be hidden, so they must be asked singly. A hidden pair adds nothing,
  // whatever its rows hold, NaN included.
  void (*forward)(const KeyTile&, bool partial, const TileOptions&, Ahead, float* tile,
                  float* shared);
  void (*store)(const QueryTile&, const TileOptions&, float* tile);

  void (*load_backward)(const QueryTile&, const TileOptions&, float* tile);
  void (*backward)(const KeyTile&, bool partial, const TileOptions&, Ahead, float* tile,
                   float* shared);
  void (*store_backward)(const QueryTile&, const TileOptions&, float* tile);
};

extern const AttentionTileKernels kAttentionTilesPortable;
#if defined(__x86_64__)
extern const AttentionTileKernels kAttentionTilesAvx2;
extern const AttentionTileKernels kAttentionTilesAvx512;
#endif

}  // namespace odyssey
