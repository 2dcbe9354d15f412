// SPDX-License-Identifier: Apache-2.0
// Proves a schedule: plays the lists of all ranks against each other, without data.
#pragma once
#include <string>
#include <vector>

#include "odyssey/schedule/step.h"

namespace odyssey {

enum class Direction { kForward, kBackward };

// steps[r][u] is the list of ring rank r, Ulysses rank u. Returns the first fault in words, or an
// empty string when the lists are right:
//   - every visible (query, key) pair is attended to exactly once, of rows that are really there;
//   - every send has a receive of the same rows and bytes in the same order, and nobody waits for
//     ever, even when a send is complete only once its receive is there;
//   - what a rank holds at a time fits in its buffers (block_buffers.h);
//   - backward: the dK and dV of a row at home hold the part of every rank that attended to it,
//   once.
// It knows nothing of how the lists are made: what is visible it counts in pairs.
std::string find_fault(const AttentionLayout& layout, Direction direction,
                       const std::vector<std::vector<std::vector<Step>>>& steps);

// Builds the lists of all ranks and checks them. Cost grows with P * R: for tests and `odyssey
// check`.
std::string find_fault(const AttentionLayout& layout);

}  // namespace odyssey
