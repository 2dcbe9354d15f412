// SPDX-License-Identifier: Apache-2.0
// Cross entropy of fp32 logits against target tokens: loss of a row = log(sum e^logit) -
// logit[target]. Stable for logits of any size. The rows run in kernels/row_kernels.h.
#pragma once
#include <cstdint>

#include "odyssey/kernels/input.h"

namespace odyssey {

struct CrossEntropySum {
  double loss = 0;    // sum of weight * loss, over rows in order
  double weight = 0;  // sum of the weights
  int64_t count = 0;  // rows with a weight other than 0
};

// logits [C, V] (C rows of a chunk), targets and weights [C], d_logits [C, V]
// = weight * (softmax(logits) - onehot(target)). A row of weight 0 is not looked at: its gradient
// is zero and its target may be anything. d_logits may be the logits themselves where T is float.
// Throws UserError for a target outside [0, V).
template <Storage T>
CrossEntropySum cross_entropy(View<const float, 2> logits, std::span<const int32_t> targets,
                              std::span<const float> weights, View<T, 2> d_logits);

// The sums alone, for evaluation.
CrossEntropySum cross_entropy(View<const float, 2> logits, std::span<const int32_t> targets,
                              std::span<const float> weights);

}  // namespace odyssey
