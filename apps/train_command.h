// SPDX-License-Identifier: Apache-2.0
// `odyssey train`: what a training run prints and writes.
#pragma once
#include <string>
#include <vector>

#include "apps/launch.h"
#include "odyssey/train/trainer.h"

namespace odyssey {

struct TrainCommand {
  std::string yml;
  std::vector<std::string> key_values;
};

// Returns the exit code.
int run_train_command(const TrainCommand& command, const LaunchOptions& options);

// The line of one step, as MaxText prints it, with the perplexity at the end. No line end.
std::string step_line(const StepReport& report);

// What a run prints before its first step, with line ends.
std::string start_block(const RunConfig& config, const StartReport& report);

}  // namespace odyssey
