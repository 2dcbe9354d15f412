// SPDX-License-Identifier: Apache-2.0
// `odyssey bench kernel`: how fast each kernel is on this machine, and how near to its peak.
#pragma once
#include <string>
#include <vector>

#include "apps/bench_run.h"

namespace odyssey {

struct BenchCommand {
  std::vector<std::string> sets;  // empty: attention, matmul, elementwise
  std::string json;               // file of results; empty: none
  BenchOptions options;
};

// Prints a table, a row as soon as it is measured. Reads all sets before it measures anything.
// Returns the exit code. The file has a JSON object a line.
int run_bench_command(const BenchCommand& command);

}  // namespace odyssey
