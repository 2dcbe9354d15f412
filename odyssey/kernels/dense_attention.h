// SPDX-License-Identifier: Apache-2.0
// Dense attention in fp64 on whole rows, forward and backward, straight from the definition: no
// blocks, no running softmax, no placement. What `odyssey check` and the tests hold the real thing
// against.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "odyssey/sequence/block_mask.h"

namespace odyssey {

// One batch row in natural token order. q, dout: [S, H, D]; k, v: [S, K, D].
struct DenseAttentionInput {
  int64_t sequence_length = 0, query_heads = 0, kv_heads = 0, head_size = 0;
  std::span<const float> q, k, v;
  std::span<const float> dout;        // empty: no backward
  std::span<const int32_t> segments;  // [S] or empty
  std::span<const float> sinks;       // [H] or empty
  MaskKind kind = MaskKind::kCausal;
  int64_t window = 0;
  double scale = 1, soft_cap = 0;
};

struct DenseAttentionOutput {
  std::vector<double> out, lse;    // [S, H, D], [H, S]
  std::vector<double> dq, dk, dv;  // as q, k, v; empty without dout
  std::vector<double> dsinks;      // [H]
  std::vector<double> max_logits;  // [H], -inf where nothing is visible
};

// Takes O(S^2 H D) time and O(S) memory beside its result.
DenseAttentionOutput dense_attention(const DenseAttentionInput& input);

}  // namespace odyssey
