// SPDX-License-Identifier: Apache-2.0
// Times calls on all ranks of a group at once. A shared machine changes the speed of its matrix
// products by factors within seconds, and that of its memory hardly: so the part of a time that
// consists of products is held to the live peak of its moment.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "apps/bench_spread.h"
#include "odyssey/comm/group.h"
#include "odyssey/kernels/peak.h"

namespace odyssey {

struct Probe {
  std::function<void()> call;  // the same on every rank; may talk to the other ranks
  // kCpu: seconds of a core, mean of the ranks; more ranks than cores may run. kWall: until the
  // last rank is done.
  Clock clock = Clock::kCpu;
  double products = 0;  // share of its time that goes with the live peak
};

struct ProbeOptions {
  PeakKind peak = PeakKind::kAmxBf16;
  int cores = 1;  // of all ranks together: so many look at the peak at once
  int least_rounds = 2;
  double most_seconds = 25;    // no further round begins later
  double call_seconds = 4e-3;  // a call that takes less is repeated, for each time
  double reference_peak = 0;   // TFLOP/s of a core; 0: the median of all looks
};

// One time, and the live peaks just before and after it: TFLOP/s of a core.
struct ProbeSample {
  double seconds, before, after;
  // Else the machine changed meanwhile, and nobody knows when.
  bool is_steady() const;
  double peak() const;
};

struct ProbeTimes {
  std::vector<Spread> seconds;  // of each probe over its steady times, at the reference peak
  Spread peak;                  // live peak of a core, TFLOP/s, of all looks
  double reference_peak = 0;
  int rounds = 0;
};

// All probes by turns, round after round, and looks at the peak between them. The result is the
// same on all ranks. Collective.
ProbeTimes time_probes(Group& group, const std::vector<Probe>& probes, const ProbeOptions& options);

// The median and the ends of `samples` at the reference peak: a time of which the share `products`
// goes with the peak. Of the steady samples, where there are enough.
Spread at_reference(const std::vector<ProbeSample>& samples, double products,
                    double reference_peak);

}  // namespace odyssey
