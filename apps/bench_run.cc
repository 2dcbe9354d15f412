// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_run.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "apps/bench_spread.h"
#include "apps/bench_tensors.h"
#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/isa.h"

namespace odyssey {
namespace {

constexpr int kFewestRuns = 3, kMostRuns = 31;
// A shorter call is repeated, so that a run is long against what disturbs it.
constexpr double kRunSeconds = 0.02;

// Seconds between two looks at the peak. On a shared machine it may halve within a second.
constexpr double kPeakAge = 0.2;

// One run, and the peak of its moment: the mean of the peaks measured just before and just after
// the runs that it stands among.
struct Run {
  double seconds = 0, peak = 0;
};

// The runs of one problem with one number of threads.
class Series {
 public:
  Series(const std::function<void()>& call, const BenchProblem& problem,
         const BenchOptions& options, int threads)
      : call_(call), problem_(problem), clock_(options.clock), threads_(threads) {
    set_thread_count(threads_);
    call_();  // not counted: it makes pages and scratch
    const double start = seconds_now(clock_);
    call_();
    const double once = std::max(seconds_now(clock_) - start, 1e-9);
    calls_ = std::max<int64_t>(1, std::llround(kRunSeconds / once));
    peak_ = live_peak();
    // The first run after a calibration of copies would find cold caches.
    if (problem_.is_elementwise()) call_();
  }

  // Seconds that it took, of all its calls.
  double run() {
    set_thread_count(threads_);
    const double start = seconds_now(clock_);
    for (int64_t i = 0; i < calls_; ++i) call_();
    const double seconds = seconds_now(clock_) - start;
    runs_.push_back({seconds / static_cast<double>(calls_), 0});
    return seconds;
  }
  // Gives the runs since the last pairing their peak.
  void pair() {
    const double next = live_peak();
    for (; paired_ < runs_.size(); ++paired_) runs_[paired_].peak = (peak_ + next) / 2;
    peak_ = next;
  }

  int threads() const { return threads_; }
  const std::vector<Run>& runs() const { return runs_; }

 private:
  double live_peak() const {
    if (problem_.is_elementwise()) {
      return copy_gbytes_per_second(static_cast<int64_t>(bytes_of(problem_)), threads_, clock_);
    }
    const Isa isa = isa_in_use();
    return peak_tflops(problem_.is_bf16() ? bf16_peak(isa) : fp32_peak(isa), threads_, clock_);
  }

  const std::function<void()>& call_;
  const BenchProblem& problem_;
  Clock clock_;
  int threads_;
  int64_t calls_ = 1;  // of a run
  double peak_ = 0;
  std::vector<Run> runs_;
  size_t paired_ = 0;  // runs that have their peak
};

std::vector<Series> measure(const std::function<void()>& call, const BenchProblem& problem,
                            const BenchOptions& options) {
  std::vector<Series> series;
  for (const int threads : options.threads) series.emplace_back(call, problem, options, threads);
  double total = 0, since_peak = 0;
  for (int done = 0; done < kFewestRuns || (total < options.seconds && done < kMostRuns); ++done) {
    // Peaks of operations leave the caches alone, so they may stand between runs.
    if (since_peak > kPeakAge && !problem.is_elementwise()) {
      for (Series& one : series) one.pair();
      since_peak = 0;
    }
    double longest = 0;
    for (Series& one : series) {
      const double seconds = one.run();
      longest = std::max(longest, seconds);
      since_peak += seconds;
    }
    total += longest;
  }
  for (Series& one : series) one.pair();
  return series;
}

double speedup(const Series& first, const Series& other) {
  std::vector<double> ratios;
  for (size_t i = 0; i < first.runs().size(); ++i) {
    ratios.push_back(first.runs()[i].seconds / other.runs()[i].seconds);
  }
  return spread_of(ratios).median;
}

BenchResult result_of(const Series& series, const BenchProblem& problem) {
  const double work =
      problem.is_elementwise() ? bytes_of(problem) * 1e-9 : flops_of(problem) * 1e-12;
  std::vector<double> seconds, peaks, shares;
  for (const Run& run : series.runs()) {
    seconds.push_back(run.seconds);
    peaks.push_back(run.peak);
    shares.push_back(work / run.seconds / run.peak);
  }
  BenchResult result;
  const Isa isa = isa_in_use();
  result.threads = series.threads();
  result.isa = name_of(problem.is_bf16() ? isa : std::min(isa, Isa::kAvx512));
  result.runs = static_cast<int>(series.runs().size());
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

}  // namespace

std::vector<BenchResult> run_bench_problem(const BenchProblem& problem,
                                           const BenchOptions& options) {
  const std::function<void()> call = make_bench_call(problem);
  const std::vector<Series> series = measure(call, problem, options);
  std::vector<BenchResult> results;
  for (const Series& one : series) {
    results.push_back(result_of(one, problem));
    results.back().speedup = speedup(series.front(), one);
  }
  return results;
}

}  // namespace odyssey
