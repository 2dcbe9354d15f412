// SPDX-License-Identifier: Apache-2.0
// One line that is overwritten in place: a bar, the steps done, the time left. Terminals only.
#pragma once
#include <cstdint>
#include <string>

namespace odyssey {

// At most `columns` wide: "[#####.....] 20/40 steps, 10 s left". No time where seconds_left < 0.
std::string progress_text(int64_t done, int64_t total, double seconds_left, int columns);

// "45 s", "12 min", "3 h 05 min", "2 d 04 h".
std::string readable_time(double seconds);

class ProgressLine {
 public:
  // On stderr; does nothing unless that is a terminal.
  ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine() { clear(); }

  // Replaces the line.
  void show(int64_t done, int64_t total, double seconds_left);
  // Takes the line away; to be called before anything else is printed.
  void clear();

 private:
  bool is_terminal_;
  bool is_shown_ = false;
};

}  // namespace odyssey
