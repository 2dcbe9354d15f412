// SPDX-License-Identifier: Apache-2.0
// Floating-point operations of a step by MaxText's formula: matrix products of forward and
// backward, causal attention counted half, no recompute, no segments. So figures compare with
// MaxText's.
#pragma once
#include "odyssey/config/run_config.h"

namespace odyssey {

// Of one rank and one step, in units of 10^12.
struct StepTeraflops {
  double learnable = 0;  // matrix products with weights
  double attention = 0;
  double total() const { return learnable + attention; }
};
StepTeraflops step_teraflops(const RunConfig& config);

// Tokens of one rank and one step; fractional where several ranks share a row.
double step_tokens(const RunConfig& config);

}  // namespace odyssey
