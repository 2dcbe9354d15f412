// SPDX-License-Identifier: Apache-2.0
// AdamW on this rank's shard of the weights, with clipping by the global norm.
#pragma once
#include <span>
#include <vector>

#include "odyssey/base/buffer.h"
#include "odyssey/comm/group.h"
#include "odyssey/config/run_config.h"
#include "odyssey/model/sharded_parameters.h"

namespace odyssey {

class Optimizer {
 public:
  // size: elements of the shard. shard_group: the ranks that together hold one copy of the model.
  // undecayed: elements of the shard without weight decay, ascending. All others have it, norms and
  // biases too, as in MaxText.
  Optimizer(const OptimizerConfig& config, int64_t size, Group& shard_group,
            std::vector<ShardRange> undecayed = {});

  struct Norms {
    double raw_gradient = 0;  // of the mean gradient, before clipping
    double gradient = 0;      // after clipping
    double parameters = 0;    // after the update
  };
  // One update. gradients hold sums over tokens; total_weight is the number of those tokens over
  // all ranks: the one division of the whole step. Collective over the shard group.
  Norms step(double learning_rate, double total_weight, std::span<const float> gradients,
             std::span<float> weights);

 private:
  double global_norm(double squares_of_shard);

  OptimizerConfig config_;
  Group& shard_group_;
  std::vector<ShardRange> undecayed_;
  int64_t steps_ = 0;
  Buffer<float> mu_, nu_;
};

}  // namespace odyssey
