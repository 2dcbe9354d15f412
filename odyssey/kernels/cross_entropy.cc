// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/row_kernels.h"
#include "odyssey/kernels/scratch.h"

namespace odyssey {
namespace {

void check_arguments(View<const float, 2> logits, std::span<const int32_t> targets,
                     std::span<const float> weights) {
  const int64_t rows = logits.extent(0), vocabulary = logits.extent(1);
  check_rows_contiguous(logits, "logits");
  ODYSSEY_CHECK(static_cast<int64_t>(targets.size()) == rows, "{} targets for {} rows",
                targets.size(), rows);
  ODYSSEY_CHECK(weights.size() == targets.size(), "{} weights for {} rows", weights.size(), rows);
  for (size_t c = 0; c < targets.size(); ++c) {
    if (weights[c] == 0 || (targets[c] >= 0 && targets[c] < vocabulary)) continue;
    throw user_error(fmt::format("target token at index {}", c),
                     fmt::format("a token of the vocabulary, 0 to {}", vocabulary - 1),
                     std::to_string(targets[c]), "Use the tokenizer that belongs to the model.");
  }
}

// Calls after(c, row) for every row of weight other than 0, skip(c) for the others.
template <class After, class Skip>
CrossEntropySum sum_rows(View<const float, 2> logits, std::span<const int32_t> targets,
                         std::span<const float> weights, const After& after, const Skip& skip) {
  check_arguments(logits, targets, weights);
  const int64_t rows = logits.extent(0);
  thread_local Scratch<double> scratch;
  double* losses = scratch.at_least(rows);
  const auto exponential_sum = row_kernels().exponential_sum;
  parallel_for(rows, [&](int64_t c) {
    const size_t i = static_cast<size_t>(c);
    losses[c] = 0;
    if (weights[i] == 0) {
      skip(c);
      return;
    }
    const float* logit = logits.data() + c * logits.stride(0);
    const ExponentialSum row = exponential_sum(logit, logits.extent(1));
    const double loss = std::log(row.sum) + (static_cast<double>(row.most) - logit[targets[i]]);
    losses[c] = static_cast<double>(weights[i]) * loss;
    after(c, row);
  });
  CrossEntropySum total;
  for (int64_t c = 0; c < rows; ++c) {
    total.loss += losses[c];
    total.weight += weights[static_cast<size_t>(c)];
    total.count += weights[static_cast<size_t>(c)] != 0 ? 1 : 0;
  }
  return total;
}

}  // namespace

template <Storage T>
CrossEntropySum cross_entropy(View<const float, 2> logits, std::span<const int32_t> targets,
                              std::span<const float> weights, View<T, 2> d_logits) {
  check_same_shape(logits, d_logits, "logits and d_logits");
  check_rows_contiguous(d_logits, "d_logits");
  const int64_t vocabulary = logits.extent(1);
  const auto softmax = stored_rows<T>(row_kernels()).softmax;
  // Just after the sum of the row, which is still in the cache.
  const auto gradient = [&](int64_t c, const ExponentialSum& row) {
    const size_t i = static_cast<size_t>(c);
    const float* logit = logits.data() + c * logits.stride(0);
    T* gradients = d_logits.data() + c * d_logits.stride(0);
    const float factor = static_cast<float>(weights[i] / row.sum);
    float at_target;  // before the gradients: they may take the place of the logits
    row_kernels().fp32.softmax(logit + targets[i], row.most, factor, 1, &at_target);
    softmax(logit, row.most, factor, vocabulary, gradients);
    gradients[targets[i]] = T(at_target - weights[i]);
  };
  return sum_rows(logits, targets, weights, gradient, [&](int64_t c) {
    std::fill_n(d_logits.data() + c * d_logits.stride(0), vocabulary, T(0.0f));
  });
}

CrossEntropySum cross_entropy(View<const float, 2> logits, std::span<const int32_t> targets,
                              std::span<const float> weights) {
  return sum_rows(
      logits, targets, weights, [](int64_t, const ExponentialSum&) {}, [](int64_t) {});
}

template CrossEntropySum cross_entropy<float>(View<const float, 2>, std::span<const int32_t>,
                                              std::span<const float>, View<float, 2>);
template CrossEntropySum cross_entropy<bf16>(View<const float, 2>, std::span<const int32_t>,
                                             std::span<const float>, View<bf16, 2>);

}  // namespace odyssey
