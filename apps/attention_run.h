// SPDX-License-Identifier: Apache-2.0
// One attention call on whole tensors in natural token order: every rank takes its rows, the ranks
// attend together, and rank 0 gets the whole result, whatever layout and placement.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "odyssey/comm/group.h"
#include "odyssey/config/run_config.h"
#include "odyssey/context/parallel_attention.h"
#include "odyssey/schedule/step.h"

namespace odyssey {

// Fills `out` with the elements [first, first + out.size()) of a tensor in storage order. Called by
// all ranks at once. May throw UserError.
using ReadPart = std::function<void(int64_t first, std::span<float> out)>;

struct AttentionProblem {
  int64_t batch = 1, length = 0;                         // B, S
  int64_t query_heads = 0, kv_heads = 0, head_size = 0;  // H, K, D
  ReadPart query, key, value;                            // [B, S, H, D], [B, S, K, D] twice
  ReadPart dout;                                         // [B, S, H, D]; none: no backward
  std::vector<int32_t> segments;                         // [B, S] or empty
  std::vector<float> sinks;                              // [H] or empty
};

struct AttentionResult {
  std::vector<float> out, lse;              // [B, S, H, D], [B, H, S]
  std::vector<float> dquery, dkey, dvalue;  // as the inputs; empty without dout
  std::vector<float> dsinks;                // [H]; empty without sinks or dout
  std::vector<float> max_logits;            // [H], -inf where nothing is visible
  double seconds = 0;                       // of forward and backward, on rank 0
};

// Mask, scale, cap, layout and data type come from the configuration (bfloat16: inputs are rounded
// first). B must be a multiple of data x fsdp, which share the batch rows. Collective over `world`,
// whose size is config.parallel.ranks(). The result is on rank 0; empty elsewhere.
AttentionResult run_attention(const RunConfig& config, const AttentionProblem& problem,
                              Group& world);

// The layout of one batch slice of such a call. Slices differ where segment ids are given.
AttentionLayout attention_layout(const RunConfig& config, const AttentionProblem& problem,
                                 int64_t slice = 0);

// The factor of the scores: attention_scale, or 1/sqrt(D).
float attention_scale(const RunConfig& config, int64_t head_size);
// That factor and the soft cap.
ParallelAttentionOptions call_options(const RunConfig& config, int64_t head_size);

}  // namespace odyssey
