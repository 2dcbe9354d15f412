// SPDX-License-Identifier: Apache-2.0
// For tests only: runs the odyssey program as a user would, in a shell.
#pragma once
#include <string>

namespace odyssey {

struct ProgramResult {
  int code = -1;  // exit code; 128 + signal where it was killed
  std::string out, err;
};

// `before` comes first in the shell: variables, or mpirun.
ProgramResult run_program(const std::string& arguments, const std::string& before = "");

// "mpirun -n 4", with the path that the build found. The environment variable ODYSSEY_TEST_PRELOAD
// names a library that the ranks load first.
std::string mpirun(int ranks);

}  // namespace odyssey
