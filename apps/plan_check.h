// SPDX-License-Identifier: Apache-2.0
// Predicted against measured: the rows of `odyssey bench plan`, how far they agree, as text and
// JSON.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "apps/bench_json.h"
#include "apps/bench_spread.h"
#include "odyssey/config/run_config.h"

namespace odyssey {

// One layout. Seconds at the live peak of the file (probe_clock.h).
struct PlanCheck {
  ParallelConfig parallel;
  int64_t length = 0;
  double predicted = 0;
  Spread seconds;

  double error() const { return predicted / seconds.median - 1; }
};

// Pairs that surely differ: medians by over 5 %, and no run of one within the spread of the other.
struct PairOrder {
  int pairs = 0, ordered = 0;
};
struct Agreement {
  double mean_error = 0, largest_error = 0;
  PairOrder all, layouts;  // of all rows; of those of one length and number of ranks
};
Agreement agreement_of(const std::vector<PlanCheck>& rows);

// The table and the agreement.
std::string plan_check_text(const std::vector<PlanCheck>& rows);
void write_plan_checks(const std::vector<PlanCheck>& rows, BenchJson& json);

}  // namespace odyssey
