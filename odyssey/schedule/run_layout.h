// SPDX-License-Identifier: Apache-2.0
// The attention layout of a run, the same for the trainer and for the planner.
#pragma once
#include <cstdint>

#include "odyssey/config/run_config.h"
#include "odyssey/schedule/step.h"

namespace odyssey {

// Of `batch` rows on each batch slice, with the mask of the first layer (with_mask gives those of
// others) and without documents.
AttentionLayout run_layout(const RunConfig& run, int64_t batch);

}  // namespace odyssey
