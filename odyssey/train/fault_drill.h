// SPDX-License-Identifier: Apache-2.0
// A fault on purpose, so that anybody can see on their own cluster that a dying rank ends the run
// on all ranks. ODYSSEY_FAULT_DRILL=KIND:RANK:STEP with KIND throw (an error), kill (SIGKILL), or
// hang.
#pragma once
#include <cstdint>

namespace odyssey {

// Called in the middle of every step. Does nothing unless the variable names this rank and step.
// Throws UserError when the variable is not of that form.
void fault_drill(int rank, int64_t step);

}  // namespace odyssey
