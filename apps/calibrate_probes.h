// SPDX-License-Identifier: Apache-2.0
// The measurements of `odyssey calibrate`: kernels, passes over memory and transfers, all on every
// rank at once, so that what ranks take from each other is in the numbers.
#pragma once
#include <cstdint>

#include "apps/bench_ranks.h"
#include "apps/bench_spread.h"
#include "apps/calibrate_calls.h"

namespace odyssey {

struct CalibrationPlan {
  int ranks = 1;
  bool quick = false;  // small blocks, twice: seconds, and rough
  AttentionShape shape;
  std::vector<BenchAttentionRow> calls;  // calibration_rows
};

struct CalibrationResult {
  CpuRates rates;
  int64_t cores = 0;  // of all hosts
  int rounds = 0;
  FitQuality forward, backward, shift, exchange, gather;
  CallFactors calls;       // already in the rates
  double fp32_tflops = 0;  // peak of a core
  Spread peak;             // of a core, TFLOP/s, while it was measured
};

// Collective over the world of `ranks`; the result is on the process that prints. Seconds are CPU
// seconds, so more ranks than cores may run: they take caches from each other, as they will.
CalibrationResult calibrate(const BenchRanks& ranks, const CalibrationPlan& plan);

}  // namespace odyssey
