// SPDX-License-Identifier: Apache-2.0
// `odyssey bench step`: real training steps on every layout of some ranks and at several lengths,
// as a table of median step seconds.
#pragma once
#include <string>
#include <vector>

#include "apps/bench_layouts.h"
#include "apps/launch.h"

namespace odyssey {

struct BenchStepCommand {
  std::string yml;
  std::vector<std::string> key_values;
  int ranks = 0;                 // 0: 8 threads, or all processes
  std::vector<int64_t> lengths;  // empty: max_target_length of the configuration
  BenchChoice choice;
  int64_t steps = 3;  // counted in each repeat, after one that warms up
  int repeats = 1;    // the whole table again, so that every cell is measured at several times
  std::string json;   // file of results; empty: none
};

// Prints the table in markdown when all is measured, and writes the JSON file. Returns the exit
// code.
int run_bench_step(const BenchStepCommand& command, Engine engine);

}  // namespace odyssey
