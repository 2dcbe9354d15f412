// SPDX-License-Identifier: Apache-2.0
// `odyssey plan`: predicts time and memory of a training step on machines that are not here, for
// every layout, and tells how good the predictions are.
#pragma once
#include <string>
#include <vector>

#include "odyssey/plan/job.h"

namespace odyssey {

struct PlanCommand {
  std::string yml;                 // may be empty
  std::vector<std::string> words;  // key=value, hardware.FIELD=VALUE; files for the modes below
  bool validate = false, cross_validate = false, fit = false;
  std::string output;  // of fit: file of constants; empty: they are printed
  int top = 20;        // rows of the table
  std::string json;    // file for all rows; empty: none
  std::string svg;     // folder for pictures, made where it is missing; empty: none
};

// What train/memory.h says of the trainer here, for machines of CPUs.
RankBytes trainer_memory(const RunConfig& config);

// Prints; returns the exit code.
int run_plan_command(const PlanCommand& command);

}  // namespace odyssey
