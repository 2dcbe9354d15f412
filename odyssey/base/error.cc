// SPDX-License-Identifier: Apache-2.0
#include "odyssey/base/error.h"

namespace odyssey {

UserError user_error(std::string_view what, std::string_view expected, std::string_view actual,
                     std::string_view remedy) {
  return UserError(fmt::format("{}: expected {}, got {}. {}", what, expected, actual, remedy));
}

void fail_check(const char* file, int line, const std::string& text) {
  throw std::logic_error(fmt::format("{}:{}: broken invariant: {}", file, line, text));
}

}  // namespace odyssey
