// SPDX-License-Identifier: Apache-2.0
// Runs one problem of `odyssey bench kernel`: makes random tensors, calls the kernel through its
// public header again and again, and holds each run to a peak measured just before and after.
#pragma once
#include <string>
#include <vector>

#include "apps/bench_problem.h"
#include "odyssey/kernels/peak.h"

namespace odyssey {

struct BenchOptions {
  std::vector<int> threads = {1};  // they take turns
  // A run repeats the call for 20 ms; repeats runs until these seconds are over: at least 3, at
  // most 31.
  double seconds = 1;
  Clock clock = Clock::kWall;
};

struct BenchResult {
  int threads = 1;
  std::string isa;  // best kernels allowed; fp32 never uses more than avx512
  int runs = 0;
  double median_seconds = 0, min_seconds = 0, max_seconds = 0;
  double tflops = 0;             // 0 for elementwise kernels
  double gbytes_per_second = 0;  // 0 for the others
  // TFLOP/s, or GB/s of a copy for elementwise kernels, measured before, between and after the
  // runs; median. The share is the median of the shares of each run in the peak of its moment.
  double live_peak = 0;
  double share_of_peak = 0;
  // Seconds with the first number of threads over those with this one; median over pairs of runs
  // that followed each other.
  double speedup = 1;
};

// One result for each number of threads, which are set for the calling thread and stay.
std::vector<BenchResult> run_bench_problem(const BenchProblem& problem,
                                           const BenchOptions& options);

}  // namespace odyssey
