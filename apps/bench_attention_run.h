// SPDX-License-Identifier: Apache-2.0
// Measures one attention call, forward and backward, on one layout: what `odyssey bench attention`
// prints a row of. The numbers in the tensors are random; one sequence (B = 1).
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "apps/bench_ranks.h"
#include "odyssey/config/run_config.h"
#include "odyssey/kernels/peak.h"
#include "odyssey/schedule/step.h"

namespace odyssey {

struct BenchAttentionRow {
  RunConfig config;               // layout, shape, mask, data type
  bool dense = false;             // one rank: what the others are held against
  int threads = 1;                // of each rank; more than 1 only for a dense row
  int64_t length = 0;             // S
  std::vector<int32_t> segments;  // [S], or empty: one document

  int ranks() const { return config.parallel.ranks(); }
  AttentionLayout layout() const;
  // Bytes that the ranks of the row hold together on a machine that has at most `ranks_here` of
  // them, tensors included.
  int64_t bytes_needed(int ranks_here) const;
};

// Known from the layout alone, before anything runs.
struct BenchAttentionWork {
  double pairs_times_heads = 0;  // visible (query, key) pairs, documents considered, over all heads
  double busiest_over_mean = 1;  // of the ranks, in the same unit
  // Mean of the ranks: what they would send if every query saw every key, so that no block could be
  // left out.
  double full_bytes = 0;
};
BenchAttentionWork work_of(const BenchAttentionRow& row);

// One run. CPU seconds count every thread of a rank only where it has one thread.
struct BenchAttentionRun {
  double seconds = 0;  // wall, of the rank that took longest
  double busiest_cpu_seconds = 0, mean_cpu_seconds = 0;
  double forward_cpu_seconds = 0, backward_cpu_seconds = 0;  // over all ranks
  double most_bytes_sent = 0, mean_bytes_sent = 0;           // of a rank
  double waiting_seconds = 0;                                // mean of the ranks
  double live_peak_tflops = 0;  // of the cores of the row, mean of before and after
};

// [S] ids 1 to `documents` in order; lengths are mixed at random, the same on every call. Empty for
// one document. S is at least `documents`.
std::vector<int32_t> random_documents(int64_t length, int64_t documents);

// The tensors of all rows of one process, made once: rows take the part that they need.
class BenchAttentionTensors;

class BenchAttentionRunner {
 public:
  // `rows` and `ranks` outlive the runner. Takes the memory of the tensors.
  BenchAttentionRunner(const BenchRanks& ranks, const std::vector<BenchAttentionRow>& rows);
  ~BenchAttentionRunner();

  // Collective over the world. The result is on the process that prints.
  BenchAttentionRun run(const BenchAttentionRow& row);

 private:
  double live_peak(const BenchAttentionRow& row) const;

  const BenchRanks& ranks_;
  std::unique_ptr<BenchAttentionTensors> tensors_;
};

}  // namespace odyssey
