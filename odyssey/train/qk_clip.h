// SPDX-License-Identifier: Apache-2.0
// QK-clip: after the optimizer step, heads whose attention scores have grown beyond a threshold get
// smaller query and key weights, so that scores stay bounded without a change to the attention.
// Source: Kimi Team, "Kimi K2", arXiv 2507.20534, section 2.1 and algorithm 1.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "odyssey/config/run_config.h"
#include "odyssey/model/sharded_parameters.h"

namespace odyssey {

// Factors of the weights (and biases) of one layer.
struct QkClipFactors {
  std::vector<float> query;  // [H]
  std::vector<float> key;    // [K]
  int64_t clipped = 0;       // query heads whose scores shrink
};

// max_logits [H]: the largest score of each query head, over the batch and all ranks. With
// g(h) = min(1, threshold / max_logits[h]), the scores of head h shall shrink by g(h), no more:
//   key/value head k:   sqrt(g(k)), g(k) the least of its query heads
//   query head h of k:  g(h) / sqrt(g(k))
// With one query head a key/value head this is sqrt(g) for both. Where several share one, its key
// follows the worst of them, and the others' queries grow by what their key lost. Heads without any
// score (-inf), or with one that is not finite, count as g = 1.
QkClipFactors qk_clip_factors(std::span<const float> max_logits, int64_t kv_heads,
                              double threshold);

// Applies them to this rank's shards of all layers. max_logits [L, H], the same on all ranks.
// Returns how many query heads were clipped.
template <class T>
int64_t clip_query_key(const ModelConfig& model, std::span<const float> max_logits,
                       double threshold, ShardedParameters<T>& parameters);

}  // namespace odyssey
