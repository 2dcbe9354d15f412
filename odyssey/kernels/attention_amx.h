// SPDX-License-Identifier: Apache-2.0
// bf16 block attention on matrix tiles (Isa::kAmx): plans packing, items and threads. The contract
// is that of block_attention.h; `rows` is the mask summed up in tiles of kQueries x kKeys.
#pragma once
#include <cstdint>
#include <span>

#include "odyssey/kernels/attention_rows.h"
#include "odyssey/kernels/attention_tile_amx.h"
#include "odyssey/kernels/block_attention.h"

namespace odyssey::amx {

inline constexpr int64_t kMostHeadSize = 256;

// Where attend_and_finish writes.
struct Output {
  std::span<const float> sinks;
  View<bf16, 3> out;
  View<float, 2> lse;
};

// output may be null: then the state is all that is written; else the accumulator is not.
void attend(View<const bf16, 3> q, View<const bf16, 3> k, View<const bf16, 3> v,
            const AttentionRows& rows, const AttentionOptions& options, const AttentionState& state,
            const Output* output, const Poll& poll);

void attend_backward(View<const bf16, 3> q, View<const bf16, 3> k, View<const bf16, 3> v,
                     View<const bf16, 3> dout, View<const float, 2> lse, View<const float, 2> delta,
                     const AttentionRows& rows, const AttentionOptions& options,
                     const AttentionGradients& gradients, const Poll& poll);

// Bytes that a rank's first calls take and keep, for blocks of up to `rows` rows.
int64_t scratch_bytes(int64_t forward_keys, int64_t backward_keys, int64_t head_size);

}  // namespace odyssey::amx
