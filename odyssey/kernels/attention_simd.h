// SPDX-License-Identifier: Apache-2.0
// Block attention on fp32 vectors: packs keys and values, cuts the work into items for the threads
// of the rank, and hands pairs of tiles to the kernels of the instruction set in use.
// block_attention.h checks the arguments and says what is computed; `rows` is filled for tiles of
// kQueryTile and kKeyTile. bf16 is widened.
//
// Forward: an item (up to 4 query tiles of one key/value head) is independent of all others.
// Backward: an item owns its dq; items take turns at each key tile to add to its dk and dv
// (turns.h). So sums are always taken in one order, and any number of threads gives the same bits.
#pragma once
#include <cstdint>

#include "odyssey/kernels/attention_rows.h"
#include "odyssey/kernels/block_attention.h"

namespace odyssey::simd {

template <class T>
void attend(View<const T, 3> q, View<const T, 3> k, View<const T, 3> v, const AttentionRows& rows,
            const AttentionOptions& options, const AttentionState& state, const Poll& poll);

template <class T>
void attend_backward(View<const T, 3> q, View<const T, 3> k, View<const T, 3> v,
                     View<const T, 3> dout, View<const float, 2> lse, View<const float, 2> delta,
                     const AttentionRows& rows, const AttentionOptions& options, View<float, 3> dq,
                     View<float, 3> dk, View<float, 3> dv, const Poll& poll);

// As attention_scratch_bytes of block_attention.h.
int64_t scratch_bytes(int64_t forward_keys, int64_t backward_keys, int64_t head_size);

}  // namespace odyssey::simd
