// SPDX-License-Identifier: Apache-2.0
// `odyssey calibrate`: measures this machine, or the hosts of an MPI run, and writes a file that
// `odyssey plan hardware=FILE.yml` takes. bench_plan.h holds such a file against what layouts
// really take.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "apps/launch.h"

namespace odyssey {

struct CalibrateCommand {
  std::vector<std::string> key_values;  // heads, head size and data type
  int64_t ranks = 0;                    // 0: two a core, or all processes
  bool quick = false;
  std::string output;  // empty: the file is printed
};

// Prints what it found. Returns the exit code. Throws UserError before anything is measured: for an
// output that can't be written too.
int run_calibrate_command(const CalibrateCommand& command, Engine engine);

}  // namespace odyssey
