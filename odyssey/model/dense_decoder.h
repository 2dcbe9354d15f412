// SPDX-License-Identifier: Apache-2.0
// The whole decoder in fp64, forward only, on one row and one rank, written straight from the
// formulas: plain loops, dense attention, no kernel of the project. The oracle of the model's
// tests, which get gradients from it by finite differences.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "odyssey/config/run_config.h"
#include "odyssey/model/parameters.h"

namespace odyssey {

struct DenseRow {
  std::vector<int32_t> tokens, targets, positions, segments;  // [S]
  std::vector<float> weights;                                 // [S]
};

// Sum of weight * cross entropy over the row. values: all parameters, group after group.
double dense_loss(const ModelConfig& config, const std::vector<ParameterGroup>& groups,
                  std::span<const double> values, const DenseRow& row);

}  // namespace odyssey
