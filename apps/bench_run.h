// SPDX-License-Identifier: Apache-2.0
// Runs one problem of `odyssey bench kernel`: makes random tensors, calls the kernel through its
// public header again and again, and holds each run to a peak measured just before and after.
#pragma once
#include <string>

#include "apps/bench_problem.h"
#include "odyssey/kernels/peak.h"

namespace odyssey {

struct BenchOptions {
  int threads = 1;
  double seconds = 1;  // repeats until they are over: at least 3 runs, at most 31
  Clock clock = Clock::kWall;
};

struct BenchResult {
  std::string isa;  // best kernels allowed; fp32 never uses more than avx512
  int runs = 0;
  double median_seconds = 0, min_seconds = 0, max_seconds = 0;
  double tflops = 0;             // 0 for elementwise kernels
  double gbytes_per_second = 0;  // 0 for the others
  // TFLOP/s, or GB/s of a copy for elementwise kernels, measured before, between and after the
  // runs; median. The share is the median of the shares of each run in the peak of its moment.
  double live_peak = 0;
  double share_of_peak = 0;
};

// Sets the number of threads of the calling thread.
BenchResult run_bench_problem(const BenchProblem& problem, const BenchOptions& options);

}  // namespace odyssey
