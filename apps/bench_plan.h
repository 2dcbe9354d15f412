// SPDX-License-Identifier: Apache-2.0
// `odyssey bench plan`: holds what the planner predicts of this machine, from a file that
// `odyssey calibrate` wrote, against what attention calls on each layout really take.
#pragma once
#include <string>

#include "apps/bench_attention_rows.h"
#include "apps/launch.h"

namespace odyssey {

struct BenchPlanCommand {
  std::string file;            // of hardware
  BenchAttentionCommand rows;  // which layouts, lengths and ranks; how often
};

// Prints each row beside its prediction, then the mean error and how many pairs are in order, and
// writes the JSON file. Returns the exit code.
int run_bench_plan(const BenchPlanCommand& command, Engine engine);

}  // namespace odyssey
