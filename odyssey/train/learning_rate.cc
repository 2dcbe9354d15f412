// SPDX-License-Identifier: Apache-2.0
#include "odyssey/train/learning_rate.h"

#include <cmath>
#include <numbers>

namespace odyssey {

double learning_rate_of(const OptimizerConfig& config, int64_t step) {
  const auto warmup =
      static_cast<int64_t>(static_cast<double>(config.schedule_steps) * config.warmup_fraction);
  const int64_t decay = config.schedule_steps - warmup;
  if (step < warmup) {
    return config.learning_rate * static_cast<double>(step) / static_cast<double>(warmup);
  }
  if (step >= config.schedule_steps || decay <= 1) {
    return step >= config.schedule_steps ? config.learning_rate * config.final_fraction
                                         : config.learning_rate;
  }
  const double done = static_cast<double>(step - warmup) / static_cast<double>(decay - 1);
  const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * done));
  return config.learning_rate * (config.final_fraction + (1 - config.final_fraction) * cosine);
}

}  // namespace odyssey
