// SPDX-License-Identifier: Apache-2.0
// `odyssey check`: proves on this machine that a layout equals dense attention.
#pragma once
#include <string>
#include <vector>

#include "apps/launch.h"

namespace odyssey {

struct CheckCommand {
  std::string yml;  // empty: defaults
  std::vector<std::string> key_values;
};

// Prints a table. Returns kExitFailed when a case fails.
int run_check_command(const CheckCommand& command, const LaunchOptions& options);

}  // namespace odyssey
