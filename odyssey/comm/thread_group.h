// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process: the default engine, and the one that tests use. A message is
// copied once, straight from the sender's memory to the receiver's, by whichever of the two comes
// second; no rank has to poll for another one's progress.
#pragma once
#include <functional>

#include "odyssey/comm/group.h"

namespace odyssey {

// Runs body on `ranks` new threads, each with its own rank of a group "world", and joins them.
// When a body throws, the waits of all other ranks end with RunError "rank 3 of 8 failed: <cause>".
// The first failure is thrown here: UserError with its own text, anything else as that RunError.
// A single rank runs on the calling thread and its exceptions pass unchanged.
void run_on_threads(int ranks, const std::function<void(Group&)>& body);

}  // namespace odyssey
