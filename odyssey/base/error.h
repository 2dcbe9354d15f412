// SPDX-License-Identifier: Apache-2.0
// The kinds of error. The library throws and never prints, exits or aborts; apps/ turns an error
// into a message and an exit code.
#pragma once
#include <stdexcept>
#include <string>
#include <string_view>

#include <fmt/core.h>

namespace odyssey {

// The user can mend it: bad usage, configuration, file or layout. Exit code 2.
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Something failed while running: a rank died, a wait took too long, the disk is full. Exit code 1.
class RunError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// "<what>: expected <expected>, got <actual>. <remedy>", the form of every message about bad input.
UserError user_error(std::string_view what, std::string_view expected, std::string_view actual,
                     std::string_view remedy);

// Throws std::logic_error that names the place and the text: a broken invariant, a fault of ours.
[[noreturn]] void fail_check(const char* file, int line, const std::string& text);

}  // namespace odyssey

// Always on. Names the condition, then the formatted explanation.
#define ODYSSEY_CHECK(condition, ...)                                                          \
  do {                                                                                         \
    if (!(condition)) {                                                                        \
      ::odyssey::fail_check(__FILE__, __LINE__, #condition ": " + ::fmt::format(__VA_ARGS__)); \
    }                                                                                          \
  } while (false)
