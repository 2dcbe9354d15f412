// SPDX-License-Identifier: Apache-2.0
// Value: the typed value of one key, and how its text is read. The text is what a yml or a command
// line holds: True, 150_001, 1e-5, None, ["silu","linear"].
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "odyssey/config/keys.h"

namespace odyssey {

// monostate: None. Enums are lower-case strings, lists are strings such as "[silu,linear]".
using Value = std::variant<std::monostate, bool, int64_t, double, std::string>;

// Who asks: `odyssey plan` can price more than a run can do.
enum class Purpose { kRun, kPlan };

// Reads and checks; throws UserError that names `where` (empty, or "file:line: "), key and value.
Value parse_value(const Key& key, std::string_view text, std::string_view where,
                  Purpose purpose = Purpose::kRun);

// One spelling for each value: true, 150001, 1e-05, None, [silu,linear].
std::string to_text(const Value& value);

// "-1 or a whole number from 1 to 1000": what the messages say is expected.
std::string expected_of(const Key& key, Purpose purpose = Purpose::kRun);

}  // namespace odyssey
