// SPDX-License-Identifier: Apache-2.0
// The last step of `odyssey calibrate`: a handful of whole attention calls, held against what the
// rates of single kernels and transfers say of them. Between other work caches are colder and ranks
// take turns on the cores; three factors tell how much that costs here.
#pragma once
#include <vector>

#include "apps/bench_attention_rows.h"
#include "apps/calibrate_attention.h"

namespace odyssey {

// all_gather, ring and ulysses, balanced, at two lengths; one rank: a dense call.
std::vector<BenchAttentionRow> calibration_rows(const AttentionShape& shape, int ranks, bool quick,
                                                int64_t processes);

struct CallFactors {
  double attention = 1, exchanges = 1, rest = 1;  // rest: transfers and copies
  FitQuality quality;
};

// cpu_seconds[i]: of a rank of rows[i], mean of the ranks.
CallFactors fit_calls(const std::vector<BenchAttentionRow>& rows, const CpuRates& rates,
                      int ranks_per_host, const std::vector<double>& cpu_seconds);
void apply(const CallFactors& factors, CpuRates& rates);

}  // namespace odyssey
