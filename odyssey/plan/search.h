// SPDX-License-Identifier: Apache-2.0
// The search: prices every layout of a machine's chips for the run that a job asks for. Layouts
// that the run or the systems on that machine cannot have are left out, none is refused.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "odyssey/plan/cost.h"
#include "odyssey/plan/memory.h"

namespace odyssey {

// Counts of layouts of one run and machine. Many layouts share the slow part.
class CountCache {
 public:
  // `job` differs between calls by layout, batch and recomputing only.
  const Counts& of(const Job& job);

 private:
  using RingKey = std::tuple<bool, int, PlacementKind>;  // gather, R
  using Key = std::tuple<RingKey, int, int64_t, int>;    // U, rows of a group, data
  std::map<RingKey, std::vector<RingCounts>> rings_;
  std::map<Key, Counts> counts_;
};

// Other settings that make a layout faster, or make it fit.
struct Tuning {
  std::string remat_policy;
  int64_t accumulation = 1;
  double step_seconds = 0;
  double memory_bytes = 0;  // of a chip
};

struct PlanRow {
  ParallelConfig parallel;
  int64_t batch_rows = 0;    // of one micro-batch
  int64_t accumulation = 1;  // micro-batches of a step
  std::string remat_policy;
  Cost cost;
  PlanMemory memory;  // of a chip
  double step_seconds = 0, tokens_per_second = 0;
  double mfu = 0;  // share of the peak
  bool fits = false;
  bool is_asked = false;         // what the flags choose
  std::optional<Tuning> tuning;  // the fastest with another remat_policy or accumulation, if any
};

// "usp 16x4": strategy, ring size x Ulysses size.
std::string layout_name(const ParallelConfig& parallel);
// "usp 16x4 contiguous", and data x fsdp where there are several groups.
std::string name_with_placement(const ParallelConfig& parallel);
// The words that choose the row's layout and batch.
std::vector<std::string> words_of(const PlanRow& row);

// Prices the layout that the job's config holds.
PlanRow price(const Job& job, CountCache& cache);

// One row a layout, the fastest first; those that do not fit the memory come last. Exactly one row
// is asked for: the job's own. Rows have the job's remat_policy, and its number of micro-batches
// where the batch allows it, else the next smaller one; the batch of a step is always the same.
std::vector<PlanRow> search(const Job& job, CountCache& cache);

// One sentence: the items that make `row` faster or slower than `other`.
std::string compare(const PlanRow& row, const PlanRow& other);

}  // namespace odyssey
