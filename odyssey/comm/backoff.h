// SPDX-License-Identifier: Apache-2.0
// Backoff: how a waiting rank gives its core to the ranks that compute. More ranks than cores is
// normal, so a wait must never spin.
#pragma once
#include <chrono>

namespace odyssey {

class Backoff {
 public:
  Backoff() { restart(); }
  void restart();
  // Seconds since the start.
  double seconds() const;
  // Yields at first; later sleeps a fixed share of the time waited so far.
  void pause();

 private:
  std::chrono::steady_clock::time_point start_;
  int pauses_ = 0;
};

}  // namespace odyssey
