// SPDX-License-Identifier: Apache-2.0
#include "apps/progress.h"

#include <algorithm>
#include <cstdio>

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace odyssey {
namespace {

int terminal_columns() {
  winsize size{};
  constexpr int kUsual = 80;
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return size.ws_col;
}

}  // namespace

std::string readable_time(double seconds) {
  const auto whole = static_cast<int64_t>(std::max(0.0, seconds) + 0.5);
  constexpr int64_t kMinute = 60, kHour = 60 * kMinute, kDay = 24 * kHour;
  if (whole < 2 * kMinute) return fmt::format("{} s", whole);
  if (whole < 2 * kHour) return fmt::format("{} min", whole / kMinute);
  if (whole < 2 * kDay) {
    return fmt::format("{} h {:02} min", whole / kHour, whole % kHour / kMinute);
  }
  return fmt::format("{} d {:02} h", whole / kDay, whole % kDay / kHour);
}

std::string progress_text(int64_t done, int64_t total, double seconds_left, int columns) {
  std::string text = fmt::format("{}/{} steps", done, total);
  if (seconds_left >= 0) text += fmt::format(", {} left", readable_time(seconds_left));
  constexpr int kWidest = 30, kNarrowest = 5, kFrame = 3;  // "[", "] "
  const int room = std::min(kWidest, columns - kFrame - static_cast<int>(text.size()));
  if (room < kNarrowest) return text.substr(0, static_cast<size_t>(std::max(0, columns)));
  const auto filled = total > 0 ? static_cast<size_t>(done * room / total) : 0;
  return fmt::format("[{}{}] {}", std::string(filled, '#'),
                     std::string(static_cast<size_t>(room) - filled, '.'), text);
}

ProgressLine::ProgressLine() : is_terminal_(::isatty(STDERR_FILENO) == 1) {}

void ProgressLine::show(int64_t done, int64_t total, double seconds_left) {
  if (!is_terminal_) return;
  // The last column stays free: a full line would wrap.
  const std::string text = progress_text(done, total, seconds_left, terminal_columns() - 1);
  fmt::print(stderr, "\r\x1b[K{}", text);
  std::fflush(stderr);
  is_shown_ = true;
}

void ProgressLine::clear() {
  if (!is_shown_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  is_shown_ = false;
}

}  // namespace odyssey
