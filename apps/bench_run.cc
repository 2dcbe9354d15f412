// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_run.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "apps/bench_spread.h"
#include "apps/bench_tensors.h"
#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/isa.h"

namespace odyssey {
namespace {

constexpr int kFewestRuns = 3, kMostRuns = 31;

// Seconds between two looks at the peak. On a shared machine it may halve within a second.
constexpr double kPeakAge = 0.5;

double live_peak(const BenchProblem& problem, const BenchOptions& options) {
  if (problem.is_elementwise()) {
    return copy_gbytes_per_second(static_cast<int64_t>(bytes_of(problem)), options.threads,
                                  options.clock);
  }
  const Isa isa = isa_in_use();
  return peak_tflops(problem.is_bf16() ? bf16_peak(isa) : fp32_peak(isa), options.threads,
                     options.clock);
}

struct Measurement {
  std::vector<double> seconds;  // of each run
  std::vector<double> peaks;    // before, between and after
};

Measurement measure(const std::function<void()>& run, const BenchProblem& problem,
                    const BenchOptions& options) {
  Measurement result;
  run();  // not counted: it makes pages and scratch
  result.peaks.push_back(live_peak(problem, options));
  // The first run after a calibration of copies would find cold caches.
  if (problem.is_elementwise()) run();
  double total = 0, since_peak = 0;
  for (int runs = 0; runs < kFewestRuns || (total < options.seconds && runs < kMostRuns); ++runs) {
    // Peaks of operations leave the caches alone, so they may stand between runs.
    if (since_peak > kPeakAge && !problem.is_elementwise()) {
      result.peaks.push_back(live_peak(problem, options));
      since_peak = 0;
    }
    const double start = seconds_now(options.clock);
    run();
    result.seconds.push_back(seconds_now(options.clock) - start);
    total += result.seconds.back();
    since_peak += result.seconds.back();
  }
  result.peaks.push_back(live_peak(problem, options));
  return result;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

BenchResult run_bench_problem(const BenchProblem& problem, const BenchOptions& options) {
  set_thread_count(options.threads);
  const auto [seconds, peaks] = measure(make_bench_call(problem), problem, options);

  BenchResult result;
  const Isa isa = isa_in_use();
  result.isa = name_of(problem.is_bf16() ? isa : std::min(isa, Isa::kAvx512));
  result.runs = static_cast<int>(seconds.size());
  const Spread spread = spread_of(seconds);
  result.median_seconds = spread.median;
  result.min_seconds = spread.least;
  result.max_seconds = spread.most;
  result.tflops = flops_of(problem) / result.median_seconds * 1e-12;
  result.gbytes_per_second = bytes_of(problem) / result.median_seconds * 1e-9;
  result.live_peak = mean(peaks);
  result.share_of_peak =
      (problem.is_elementwise() ? result.gbytes_per_second : result.tflops) / result.live_peak;
  return result;
}

}  // namespace odyssey
