// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_run.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "apps/bench_spread.h"
#include "apps/bench_tensors.h"
#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/isa.h"

namespace odyssey {
namespace {

constexpr int kFewestRuns = 3, kMostRuns = 31;

// Seconds between two looks at the peak. On a shared machine it may halve within a second.
constexpr double kPeakAge = 0.2;

double live_peak(const BenchProblem& problem, const BenchOptions& options) {
  if (problem.is_elementwise()) {
    return copy_gbytes_per_second(static_cast<int64_t>(bytes_of(problem)), options.threads,
                                  options.clock);
  }
  const Isa isa = isa_in_use();
  return peak_tflops(problem.is_bf16() ? bf16_peak(isa) : fp32_peak(isa), options.threads,
                     options.clock);
}

// One run, and the peak of its moment: the mean of the peaks measured just before and just after
// the runs that it stands among.
struct Run {
  double seconds = 0, peak = 0;
};

std::vector<Run> measure(const std::function<void()>& run, const BenchProblem& problem,
                         const BenchOptions& options) {
  run();  // not counted: it makes pages and scratch
  double peak = live_peak(problem, options);
  // The first run after a calibration of copies would find cold caches.
  if (problem.is_elementwise()) run();
  std::vector<Run> runs;
  size_t paired = 0;  // runs that have their peak
  double total = 0, since_peak = 0;
  const auto pair = [&] {
    const double next = live_peak(problem, options);
    for (; paired < runs.size(); ++paired) runs[paired].peak = (peak + next) / 2;
    peak = next;
    since_peak = 0;
  };
  for (int done = 0; done < kFewestRuns || (total < options.seconds && done < kMostRuns); ++done) {
    // Peaks of operations leave the caches alone, so they may stand between runs.
    if (since_peak > kPeakAge && !problem.is_elementwise()) pair();
    const double start = seconds_now(options.clock);
    run();
    runs.push_back({seconds_now(options.clock) - start, 0});
    total += runs.back().seconds;
    since_peak += runs.back().seconds;
  }
  pair();
  return runs;
}

}  // namespace

BenchResult run_bench_problem(const BenchProblem& problem, const BenchOptions& options) {
  set_thread_count(options.threads);
  const std::vector<Run> runs = measure(make_bench_call(problem), problem, options);
  const double work =
      problem.is_elementwise() ? bytes_of(problem) * 1e-9 : flops_of(problem) * 1e-12;
  std::vector<double> seconds, peaks, shares;
  for (const Run& run : runs) {
    seconds.push_back(run.seconds);
    peaks.push_back(run.peak);
    shares.push_back(work / run.seconds / run.peak);
  }

  BenchResult result;
  const Isa isa = isa_in_use();
  result.isa = name_of(problem.is_bf16() ? isa : std::min(isa, Isa::kAvx512));
  result.runs = static_cast<int>(runs.size());
  const Spread spread = spread_of(seconds);
  result.median_seconds = spread.median;
  result.min_seconds = spread.least;
  result.max_seconds = spread.most;
  result.tflops = flops_of(problem) / result.median_seconds * 1e-12;
  result.gbytes_per_second = bytes_of(problem) / result.median_seconds * 1e-9;
  result.live_peak = spread_of(peaks).median;
  result.share_of_peak = spread_of(shares).median;
  return result;
}

}  // namespace odyssey
