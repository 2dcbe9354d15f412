// SPDX-License-Identifier: Apache-2.0
// The learning rate of a step: linear warm-up, cosine decay, then constant, as MaxText's "cosine".
#pragma once
#include <cstdint>

#include "odyssey/config/run_config.h"

namespace odyssey {

// With W = int(schedule_steps * warmup_fraction): 0 -> lr over the first W steps; lr -> lr *
// final_fraction along a half cosine over the others; then constant. The first step is 0.
double learning_rate_of(const OptimizerConfig& config, int64_t step);

}  // namespace odyssey
