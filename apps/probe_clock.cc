// SPDX-License-Identifier: Apache-2.0
#include "apps/probe_clock.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "odyssey/comm/all_gather.h"
#include "odyssey/comm/barrier.h"

namespace odyssey {
namespace {

// All, where too few are steady.
std::vector<ProbeSample> steady_ones(const std::vector<ProbeSample>& samples) {
  constexpr size_t kEnough = 3;
  std::vector<ProbeSample> steady;
  for (const ProbeSample& one : samples) {
    if (one.is_steady()) steady.push_back(one);
  }
  return steady.size() >= kEnough ? steady : samples;
}

class ProbeClock {
 public:
  ProbeClock(Group& group, const std::vector<Probe>& probes, const ProbeOptions& options)
      : group_(group),
        probes_(probes),
        options_(options),
        calls_(probes.size(), 1),
        samples_(probes.size()) {}

  ProbeTimes run() {
    for (size_t i = 0; i < probes_.size(); ++i) warm_up(i);
    const double start = seconds_now(Clock::kWall);
    ProbeTimes times;
    look();
    do {
      for (size_t i = 0; i < probes_.size(); ++i) time(i);
      ++times.rounds;
    } while (times.rounds < options_.least_rounds ||
             most(seconds_now(Clock::kWall) - start) < options_.most_seconds);
    look();
    times.peak = spread_of(peaks_);
    times.reference_peak =
        options_.reference_peak > 0 ? options_.reference_peak : times.peak.median;
    for (size_t i = 0; i < probes_.size(); ++i) {
      times.seconds.push_back(at_reference(samples_[i], probes_[i].products, times.reference_peak));
    }
    return times;
  }

 private:
  // A time that waits for the peak after it.
  struct Waiting {
    size_t probe;
    double seconds;
  };

  std::vector<double> of_all(double mine) const {
    std::vector<double> all(static_cast<size_t>(group_.size()));
    const std::vector<int64_t> bytes(all.size(), sizeof(double));
    all_gather(group_, std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)),
               bytes);
    return all;
  }
  double mean(double mine, int ranks) const {
    const std::vector<double> all = of_all(mine);
    return std::accumulate(all.begin(), all.begin() + ranks, 0.0) / ranks;
  }
  double most(double mine) const {
    const std::vector<double> all = of_all(mine);
    return *std::max_element(all.begin(), all.end());
  }

  // Of one call, and the same on all ranks.
  double seconds_of(size_t probe) {
    const Clock clock = probes_[probe].clock;
    barrier(group_);
    const double start = seconds_now(clock);
    for (int64_t i = 0; i < calls_[probe]; ++i) probes_[probe].call();
    if (clock == Clock::kWall) barrier(group_);
    const double mine = (seconds_now(clock) - start) / static_cast<double>(calls_[probe]);
    return clock == Clock::kCpu ? mean(mine, group_.size()) : most(mine);
  }

  // Not counted: pages and scratch. Finds how many calls make a time.
  void warm_up(size_t probe) {
    constexpr int64_t kMostCalls = 1000;
    seconds_of(probe);
    const double once = std::max(seconds_of(probe), 1e-7);
    calls_[probe] =
        std::clamp(static_cast<int64_t>(options_.call_seconds / once), int64_t{1}, kMostCalls);
  }

  void time(size_t probe) {
    // As long as a look itself.
    constexpr double kBetweenLooks = 0.12;
    const double seconds = seconds_of(probe);
    waiting_.push_back({probe, seconds});
    since_look_ += seconds * static_cast<double>(calls_[probe]);
    if (since_look_ > kBetweenLooks) look();
  }

  // More ranks than cores would only wait for each other.
  void look() {
    const int lookers = std::min(group_.size(), options_.cores);
    barrier(group_);
    const bool looks = group_.rank() < lookers;
    const double mine = looks ? peak_tflops(options_.peak, 1, Clock::kCpu) : 0;
    const double peak = mean(mine, lookers);
    for (const Waiting& one : waiting_) {
      samples_[one.probe].push_back({one.seconds, peaks_.back(), peak});
    }
    waiting_.clear();
    since_look_ = 0;
    peaks_.push_back(peak);
  }

  Group& group_;
  const std::vector<Probe>& probes_;
  const ProbeOptions& options_;
  std::vector<int64_t> calls_;                     // of each probe, for one time
  std::vector<std::vector<ProbeSample>> samples_;  // of each probe
  std::vector<Waiting> waiting_;
  std::vector<double> peaks_;
  double since_look_ = 0;  // seconds of a core
};

}  // namespace

bool ProbeSample::is_steady() const {
  constexpr double kSteady = 0.1;
  return std::fabs(std::log(before / after)) < kSteady;
}

double ProbeSample::peak() const {
  return (before + after) / 2;
}

Spread at_reference(const std::vector<ProbeSample>& samples, double products,
                    double reference_peak) {
  std::vector<double> seconds;
  for (const ProbeSample& one : steady_ones(samples)) {
    seconds.push_back(one.seconds / (products * reference_peak / one.peak() + 1 - products));
  }
  return spread_of(seconds);
}

ProbeTimes time_probes(Group& group, const std::vector<Probe>& probes,
                       const ProbeOptions& options) {
  return ProbeClock(group, probes, options).run();
}

}  // namespace odyssey
