// SPDX-License-Identifier: Apache-2.0
// The end of one row's softmax: what `finish` of block_attention.h means, for the places that do
// it.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "odyssey/kernels/block_attention.h"

namespace odyssey {

// Sets lse of row i, head h; returns what its accumulator is multiplied by to give `out`. 0 for a
// row that saw nothing, whose accumulator holds nothing.
inline float finish_row(const AttentionState& state, std::span<const float> sinks, int64_t h,
                        int64_t i, float& lse) {
  float max = state.max(h, i);
  float sum = state.sum(h, i);
  const bool saw_nothing = sum == 0;
  float factor = 1;
  if (!sinks.empty()) {
    const float most = std::max(max, sinks[h]);
    factor = std::exp(max - most);
    sum = sum * factor + std::exp(sinks[h] - most);
    max = most;
  }
  lse = sum == 0 ? -std::numeric_limits<float>::infinity() : max + std::log(sum);
  return saw_nothing ? 0 : factor / sum;
}

}  // namespace odyssey
