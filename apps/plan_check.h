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

struct Agreement {
  double mean_error = 0, largest_error = 0;
  int pairs = 0, ordered_pairs = 0;  // of a length and number of ranks, that differ by over 5 %
};
Agreement agreement_of(const std::vector<PlanCheck>& rows);

// The table and the agreement.
std::string plan_check_text(const std::vector<PlanCheck>& rows);
void write_plan_checks(const std::vector<PlanCheck>& rows, BenchJson& json);

}  // namespace odyssey
