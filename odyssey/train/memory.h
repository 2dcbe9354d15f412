// SPDX-License-Identifier: Apache-2.0
// How much memory a run needs, known before anything is allocated.
#pragma once
#include <cstdint>

#include "odyssey/config/run_config.h"

namespace odyssey {

// Bytes of the rank that needs most.
struct MemoryNeed {
  int64_t state = 0;        // its share of weights, gradients and moments, fp32
  int64_t whole_group = 0;  // room for one gathered group and its gradient
  int64_t activations = 0;  // layer inputs, one layer's results, attention workspace, logits
  int64_t of_rank() const { return state + whole_group + activations; }
};
MemoryNeed memory_need(const RunConfig& config);

// Bytes that this process can still take: free memory of the machine, or less in a container. Of
// all ranks on this machine together.
int64_t available_memory();

}  // namespace odyssey
