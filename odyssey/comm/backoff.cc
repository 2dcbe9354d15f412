// SPDX-License-Identifier: Apache-2.0
#include "odyssey/comm/backoff.h"

#include <algorithm>
#include <thread>

#include <sched.h>

namespace odyssey {

void Backoff::restart() {
  start_ = std::chrono::steady_clock::now();
  pauses_ = 0;
}

double Backoff::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Backoff::pause() {
  // About 0.3 ms on an idle core: covers the usual skew between ranks without the cost of a sleep.
  constexpr int kYields = 500;
  // A sleep of a fiftieth of the time waited adds at most 2 % to it; 0.5 ms keeps MPI progressing.
  constexpr double kShare = 0.02, kShortest = 20e-6, kLongest = 500e-6;
  if (pauses_ < kYields) {
    ++pauses_;
    sched_yield();
    return;
  }
  const double sleep = std::clamp(seconds() * kShare, kShortest, kLongest);
  std::this_thread::sleep_for(std::chrono::duration<double>(sleep));
}

}  // namespace odyssey
