// SPDX-License-Identifier: Apache-2.0
#include "odyssey/train/fault_drill.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "odyssey/base/error.h"

namespace odyssey {

void fault_drill(int rank, int64_t step) {
  const char* text = std::getenv("ODYSSEY_FAULT_DRILL");
  if (text == nullptr || *text == '\0') return;
  char kind[8] = {};
  int drill_rank = -1;
  long long drill_step = -1;
  int used = 0;
  const bool parsed =
      std::sscanf(text, "%7[a-z]:%d:%lld%n", kind, &drill_rank, &drill_step, &used) == 3 &&
      text[used] == '\0';
  const std::string name = kind;
  if (!parsed || (name != "throw" && name != "kill" && name != "hang")) {
    throw user_error("ODYSSEY_FAULT_DRILL", "throw:RANK:STEP, kill:RANK:STEP or hang:RANK:STEP",
                     text, "Unset it to train without a drill.");
  }
  if (rank != drill_rank || step != drill_step) return;
  if (name == "throw") throw RunError(fmt::format("fault drill in step {}", step));
  if (name == "kill") std::raise(SIGKILL);
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

}  // namespace odyssey
