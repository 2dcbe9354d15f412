// SPDX-License-Identifier: Apache-2.0
// Lets threads add to shared sums in a fixed order without private copies: items take turns at each
// stop (a tile of keys), in the order of their numbers. Each item passes its stops in ascending
// order, so items follow each other like trains on one line and wait only for a slower one ahead.
#pragma once
#include <atomic>
#include <cstdint>
#include <limits>
#include <thread>

namespace odyssey {

// One item's view of the progress of all. Items must be started in the order of their numbers;
// then the one that is waited for is always running.
class Turns {
 public:
  // progress [items], zeros at the start: how many stops each item is through with.
  Turns(int64_t* progress, int64_t item) : progress_(progress), item_(item) {}

  // Returns when all items before this one are through with `stop`.
  void wait(int64_t stop) {
    for (int64_t i = first_running_; i < item_; ++i) {
      int64_t at;
      for (int64_t spins = 0; (at = load(i)) <= stop; ++spins) {
        if (spins > 100) std::this_thread::yield();
      }
      if (at == kEnd && i == first_running_) ++first_running_;
    }
  }
  void done(int64_t stop) { store(stop + 1); }
  void finish() { store(kEnd); }

 private:
  static constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
  int64_t load(int64_t item) const {
    return std::atomic_ref<int64_t>(progress_[item]).load(std::memory_order_acquire);
  }
  void store(int64_t value) const {
    std::atomic_ref<int64_t>(progress_[item_]).store(value, std::memory_order_release);
  }

  int64_t* progress_;
  int64_t item_, first_running_ = 0;
};

}  // namespace odyssey
