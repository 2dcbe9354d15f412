// SPDX-License-Identifier: Apache-2.0
#include "odyssey/train/optimizer.h"

#include <cmath>
#include <utility>

#include "odyssey/comm/all_reduce.h"
#include "odyssey/kernels/adamw.h"
#include "odyssey/kernels/elementwise.h"

namespace odyssey {

Optimizer::Optimizer(const OptimizerConfig& config, int64_t size, Group& shard_group,
                     std::vector<ShardRange> undecayed)
    : config_(config),
      shard_group_(shard_group),
      undecayed_(std::move(undecayed)),
      mu_(size),
      nu_(size) {}

double Optimizer::global_norm(double squares_of_shard) {
  double squares[1] = {squares_of_shard};
  all_reduce_sum(shard_group_, squares);
  return std::sqrt(squares[0]);
}

Optimizer::Norms Optimizer::step(double learning_rate, double total_weight,
                                 std::span<const float> gradients, std::span<float> weights) {
  Norms norms;
  norms.raw_gradient = global_norm(sum_of_squares<float>(gradients)) / total_weight;
  const bool clip = config_.clip_norm > 0 && norms.raw_gradient > config_.clip_norm;
  const double factor = clip ? config_.clip_norm / norms.raw_gradient : 1;
  norms.gradient = norms.raw_gradient * factor;
  AdamwOptions options;
  options.learning_rate = learning_rate;
  options.beta1 = config_.beta1;
  options.beta2 = config_.beta2;
  options.epsilon = config_.epsilon;
  options.epsilon_root = config_.epsilon_root;
  ++steps_;
  const auto size = static_cast<int64_t>(weights.size());
  double squares = 0;
  const auto update = [&](int64_t begin, int64_t end, double decay) {
    options.weight_decay = decay;
    const int64_t count = end - begin;
    squares += adamw(options, steps_, factor / total_weight, gradients.subspan(begin, count),
                     weights.subspan(begin, count), mu_.span().subspan(begin, count),
                     nu_.span().subspan(begin, count));
  };
  int64_t done = 0;
  for (const ShardRange& range : undecayed_) {
    update(done, range.begin, config_.weight_decay);
    update(range.begin, range.end, 0);
    done = range.end;
  }
  update(done, size, config_.weight_decay);
  norms.parameters = global_norm(squares);
  return norms;
}

}  // namespace odyssey
