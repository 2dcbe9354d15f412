// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/exponential.h"
#include "odyssey/kernels/scratch.h"
#include "odyssey/kernels/store.h"

namespace odyssey {
namespace {

struct RowSum {
  float most;  // largest logit
  double sum;  // of e^(logit - most)
};

RowSum sum_row(const float* logits, int64_t vocabulary) {
  float most = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : most)
  for (int64_t v = 0; v < vocabulary; ++v) most = logits[v] > most ? logits[v] : most;
  // fp32 inside blocks of 1024, double between them: the error stays that of a short sum.
  double sum = 0;
  for (int64_t first = 0; first < vocabulary; first += 1024) {
    const int64_t end = std::min(vocabulary, first + 1024);
    float part = 0;
#pragma omp simd reduction(+ : part)
    for (int64_t v = first; v < end; ++v) part += vector_exp(logits[v] - most);
    sum += part;
  }
  return {most, sum};
}

template <class T>
void gradient_row(const float* logits, int64_t vocabulary, int64_t target, float weight,
                  const RowSum& row, T* d_logits) {
  const float factor = static_cast<float>(weight / row.sum);
  const float at_target = factor * vector_exp(logits[target] - row.most) - weight;
#pragma omp simd
  for (int64_t v = 0; v < vocabulary; ++v) {
    store(d_logits[v], factor * vector_exp(logits[v] - row.most));
  }
  d_logits[target] = T(at_target);
}

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
  parallel_for(rows, [&](int64_t c) {
    const size_t i = static_cast<size_t>(c);
    losses[c] = 0;
    if (weights[i] == 0) {
      skip(c);
      return;
    }
    const float* logit = logits.data() + c * logits.stride(0);
    const RowSum row = sum_row(logit, logits.extent(1));
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
  const auto gradient = [&](int64_t c, const RowSum& row) {
    const size_t i = static_cast<size_t>(c);
    gradient_row(logits.data() + c * logits.stride(0), vocabulary, targets[i], weights[i], row,
                 d_logits.data() + c * d_logits.stride(0));
  };
  return sum_rows(logits, targets, weights, gradient, [&](int64_t c) {
    std::fill_n(d_logits.data() + c * d_logits.stride(0), vocabulary, T(0.0f));
  });
}

CrossEntropySum cross_entropy(View<const float, 2> logits, std::span<const int32_t> targets,
                              std::span<const float> weights) {
  return sum_rows(
      logits, targets, weights, [](int64_t, const RowSum&) {}, [](int64_t) {});
}

template CrossEntropySum cross_entropy<float>(View<const float, 2>, std::span<const int32_t>,
                                              std::span<const float>, View<float, 2>);
template CrossEntropySum cross_entropy<bf16>(View<const float, 2>, std::span<const int32_t>,
                                             std::span<const float>, View<bf16, 2>);

}  // namespace odyssey
