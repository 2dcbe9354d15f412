// SPDX-License-Identifier: Apache-2.0
// Seconds of a step, or of attention calls, on CPUs that `odyssey calibrate` measured: every rank's
// schedule step by step, as the trainer runs it, on the cores that the ranks share.
#pragma once
#include "odyssey/plan/cost.h"

namespace odyssey {

// Whether estimate_on_cores can price the job: its machine was measured, and its context groups
// have at most 64 ranks (their lists of steps grow with the square of that).
bool was_measured(const Job& job);

// As estimate(). Throws UserError where the machine was measured with another dtype.
Cost estimate_on_cores(const Job& job, const Counts& counts, Scope scope);

// As call_parts(), for drawing: ranks take turns on their cores as if these were slower.
CallParts call_parts_on_cores(const Job& job, const Counts& counts, const MaskCounts& mask);

}  // namespace odyssey
