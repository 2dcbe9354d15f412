// SPDX-License-Identifier: Apache-2.0
// The help texts, written by hand: they are read more often than they change.
#pragma once
#include <string>
#include <string_view>

namespace odyssey {

// Of the program, where `command` is empty, or of one command.
std::string_view help_text(std::string_view command);

}  // namespace odyssey
