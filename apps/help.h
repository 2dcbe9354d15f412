// SPDX-License-Identifier: Apache-2.0
// The help texts, written by hand: they are read more often than they change.
#pragma once
#include <string>
#include <string_view>

namespace odyssey {

// Of the program, where `command` is empty, or of one command; of bench also by the kind of
// benchmark.
std::string_view help_text(std::string_view command, std::string_view kind = "");

}  // namespace odyssey
