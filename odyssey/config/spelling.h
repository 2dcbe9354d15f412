// SPDX-License-Identifier: Apache-2.0
// Helps with names that were typed wrong: finds the known name that is nearest.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace odyssey {

// Least number of letters to insert, delete, replace or swap with a neighbour.
int edit_distance(std::string_view a, std::string_view b);

// The candidate with the least distance, or "" where none is near enough to be what was meant.
std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);

// "a, b or c".
std::string join_with_or(const std::vector<std::string>& words);

}  // namespace odyssey
