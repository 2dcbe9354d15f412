// SPDX-License-Identifier: Apache-2.0
#include "apps/run_program.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include <sys/wait.h>

#include "odyssey/io/test_folder.h"

namespace odyssey {

ProgramResult run_program(const std::string& arguments, const std::string& before) {
  const TestFolder folder;
  const std::string err = folder.path("err");
  const std::string line =
      "( " + before + " '" ODYSSEY_PROGRAM "' " + arguments + " ) 2>'" + err + "' </dev/null";
  std::FILE* pipe = ::popen(line.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("popen failed");
  ProgramResult result;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof(buffer), pipe)) {
    result.out.append(buffer, got);
  }
  const int status = ::pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  std::ifstream file(err);
  result.err.assign(std::istreambuf_iterator<char>(file), {});
  return result;
}

std::string mpirun(int ranks) {
  const char* library = std::getenv("ODYSSEY_TEST_PRELOAD");
  const std::string preload =
      library == nullptr ? "" : " -x LD_PRELOAD='" + std::string(library) + "'";
  return "'" ODYSSEY_MPIEXEC "' -n " + std::to_string(ranks) + preload;
}

}  // namespace odyssey
