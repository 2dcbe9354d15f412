// SPDX-License-Identifier: Apache-2.0
// Memory of one chip during a step, item by item. Of CPUs the trainer's own count, if the job has
// it: then logits are among the activations, and attention too.
#pragma once
#include "odyssey/plan/cost.h"

namespace odyssey {

// Bytes.
struct PlanMemory {
  double state = 0;         // its share of fp32 weights and two moments
  double layer_inputs = 0;  // what forward keeps for backward
  double weights = 0;       // two gathered layers, bf16
  double logits = 0;        // fp32, of its tokens
  double activations = 0;   // one layer's results
  double attention = 0;     // gathered K and V, state of the ring
  double dq_partials = 0;   // fp32 partial sums of dq
  // Logits and the work of a layer are not there at the same time.
  double total() const;
};

PlanMemory plan_memory(const Job& job, const Counts& counts);

}  // namespace odyssey
