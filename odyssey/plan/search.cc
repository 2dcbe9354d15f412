// SPDX-License-Identifier: Apache-2.0
#include "odyssey/plan/search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/core.h>
#include <fmt/ranges.h>

namespace odyssey {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> small, large;
  for (int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    small.push_back(d);
    if (d * d != number) large.push_back(number / d);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

bool is_same_layout(const ParallelConfig& a, const ParallelConfig& b) {
  return a.data == b.data && a.fsdp == b.fsdp && a.ring_size == b.ring_size &&
         a.ulysses_size == b.ulysses_size && a.placement == b.placement &&
         (a.ring_size == 1 || a.outer_gather == b.outer_gather);
}

class Search {
 public:
  Search(const Job& job, CountCache& cache)
      : asked_(job),
        job_(job),
        cache_(cache),
        step_rows_(job.config.run.data.global_batch_rows *
                   job.config.run.data.gradient_accumulation_steps) {}

  std::vector<PlanRow> run() {
    for (const ParallelConfig& parallel : layouts()) {
      job_.config.run.parallel = parallel;
      PlanRow row =
          price_with(accumulation_of(parallel), asked_.config.remat_policy, asked_.config.remat);
      row.is_asked = is_same_layout(parallel, asked_.config.run.parallel);
      row.tuning = tune(row);
      rows_.push_back(std::move(row));
    }
    std::stable_sort(rows_.begin(), rows_.end(), [](const PlanRow& a, const PlanRow& b) {
      return a.fits != b.fits ? a.fits : a.step_seconds < b.step_seconds;
    });
    return std::move(rows_);
  }

 private:
  const RunConfig& run_config() const { return asked_.config.run; }

  // Every layout of all chips, the asked one in its own words.
  std::vector<ParallelConfig> layouts() const {
    const ParallelConfig& asked = run_config().parallel;
    std::vector<ParallelConfig> found;
    for (const int64_t context : divisors(asked.ranks())) {
      if (context > run_config().data.sequence_length) break;
      const int64_t groups = asked.ranks() / context;
      if (step_rows_ % groups != 0) continue;
      for (const int64_t data : divisors(groups)) {
        ParallelConfig parallel;
        parallel.data = static_cast<int>(data);
        parallel.fsdp = static_cast<int>(groups / data);
        add_context_layouts(parallel, context, found);
      }
    }
    const auto same = std::find_if(found.begin(), found.end(), [&](const ParallelConfig& one) {
      return is_same_layout(one, asked);
    });
    if (same != found.end()) {
      *same = asked;
    } else {
      found.push_back(asked);
    }
    return found;
  }

  void add_context_layouts(ParallelConfig parallel, int64_t context,
                           std::vector<ParallelConfig>& found) const {
    for (const int64_t ulysses : divisors(context)) {
      if (!can_exchange_heads(ulysses)) continue;
      parallel.ulysses_size = static_cast<int>(ulysses);
      parallel.ring_size = static_cast<int>(context / ulysses);
      const bool has_ring = parallel.ring_size > 1;
      for (const PlacementKind placement : placements(has_ring)) {
        parallel.placement = placement;
        parallel.outer_gather = false;
        parallel.strategy =
            ulysses > 1 ? (has_ring ? Strategy::kUsp : Strategy::kUlysses) : Strategy::kRing;
        if (context > 1) found.push_back(parallel);
        if (ulysses > 1) continue;  // usp with an outer gather is not built
        parallel.strategy = Strategy::kAllGather;
        parallel.outer_gather = true;
        found.push_back(parallel);
      }
    }
  }

  // Kernels on TPU keep the key/value heads of a rank whole; elsewhere several ranks may share one.
  bool can_exchange_heads(int64_t ulysses) const {
    const ModelConfig& model = run_config().model;
    return asked_.hardware.kind == MachineKind::kTpu ? model.kv_heads % ulysses == 0
                                                     : ulysses <= model.query_heads;
  }

  std::vector<PlacementKind> placements(bool has_ring) const {
    if (!has_ring) return {PlacementKind::kContiguous};
    std::vector<PlacementKind> kinds = {PlacementKind::kContiguous};
    const bool is_full = std::ranges::all_of(run_config().model.masks, [](const MaskRule& mask) {
      return mask.kind == MaskKind::kFull;
    });
    if (!is_full) {
      kinds.insert(kinds.end(), {PlacementKind::kDualChunkSwap, PlacementKind::kStriped});
    }
    // Rows of one document are placed by it as by dual_chunk_swap.
    const DataConfig& data = run_config().data;
    if (data.packing && (data.type == DatasetType::kText || data.max_segments_per_row >= 2)) {
      kinds.push_back(PlacementKind::kPerDocument);
    }
    return kinds;
  }

  // Rows of a step that one context group works on.
  int64_t group_rows(const ParallelConfig& parallel) const {
    return step_rows_ / (int64_t{parallel.data} * parallel.fsdp);
  }
  int64_t accumulation_of(const ParallelConfig& parallel) const {
    int64_t best = 1;
    for (const int64_t count : divisors(group_rows(parallel))) {
      if (count <= run_config().data.gradient_accumulation_steps) best = count;
    }
    return best;
  }

  PlanRow price_with(int64_t accumulation, const std::string& policy, const RematConfig& again) {
    job_.config.run.data.gradient_accumulation_steps = accumulation;
    job_.config.run.data.global_batch_rows = step_rows_ / accumulation;
    job_.config.remat_policy = policy;
    job_.config.remat = again;
    return price(job_, cache_);
  }

  // More micro-batches are never faster: of each policy the fewest that fit.
  std::optional<Tuning> tune(const PlanRow& row) {
    constexpr double kWorthIt = 0.999;
    std::optional<Tuning> best;
    for (const RematPolicy& policy : remat_policies()) {
      const bool is_own = policy.name == row.remat_policy;
      // The trainer on CPUs computes everything again.
      if (asked_.hardware.kind == MachineKind::kCpu && !is_own) continue;
      for (const int64_t accumulation : divisors(group_rows(row.parallel))) {
        const PlanRow other = price_with(accumulation, std::string(policy.name), policy.again);
        if (!other.fits) continue;
        const bool is_faster = !row.fits || other.step_seconds < kWorthIt * row.step_seconds;
        if (is_faster && (!best || other.step_seconds < best->step_seconds)) {
          best = {other.remat_policy, accumulation, other.step_seconds, other.memory.total()};
        }
        break;
      }
    }
    return best;
  }

  const Job& asked_;
  Job job_;  // that is being priced
  CountCache& cache_;
  int64_t step_rows_;  // of all micro-batches
  std::vector<PlanRow> rows_;
};

std::string_view reorder_word(PlacementKind kind) {
  return kind == PlacementKind::kContiguous ? "auto" : name_of(kind);
}

}  // namespace

const Counts& CountCache::of(const Job& job) {
  const PlanConfig& config = job.config;
  const ParallelConfig& parallel = config.run.parallel;
  const bool gather = parallel.ring_size > 1 && parallel.outer_gather;
  const RingKey ring = {gather, parallel.ring_size, parallel.placement};
  const int64_t groups = int64_t{parallel.data} * parallel.fsdp;
  const Key key = {ring, parallel.ulysses_size, config.run.data.global_batch_rows / groups,
                   parallel.data};
  const auto found = counts_.find(key);
  if (found != counts_.end()) return found->second;
  const auto shared = rings_.find(ring);
  const std::vector<RingCounts>& counts =
      shared != rings_.end() ? shared->second : rings_[ring] = count_ring(config);
  return counts_[key] = count(job, counts);
}

std::string layout_name(const ParallelConfig& parallel) {
  return fmt::format("{} {}x{}", name_of(parallel.strategy), parallel.ring_size,
                     parallel.ulysses_size);
}

std::string name_with_placement(const ParallelConfig& parallel) {
  std::string name = fmt::format("{} {}", layout_name(parallel), name_of(parallel.placement));
  if (parallel.data * parallel.fsdp > 1) {
    name += fmt::format(" (data {} x fsdp {})", parallel.data, parallel.fsdp);
  }
  return name;
}

std::vector<std::string> words_of(const PlanRow& row) {
  const ParallelConfig& p = row.parallel;
  const bool is_usp = p.strategy == Strategy::kUsp;
  const bool balanced = p.placement != PlacementKind::kContiguous;
  std::vector<std::string> words = {
      fmt::format("context_parallel_strategy={}", name_of(p.strategy)),
      fmt::format("ici_context_parallelism={}",
                  is_usp ? p.ring_size : p.ring_size * p.ulysses_size),
      fmt::format("ici_context_usp_ulysses_parallelism={}", is_usp ? p.ulysses_size : 1),
      fmt::format("ici_data_parallelism={}", p.data),
      fmt::format("ici_fsdp_parallelism={}", p.fsdp),
      fmt::format("context_parallel_load_balance={}", balanced),
      fmt::format("context_parallel_reorder_strategy={}", reorder_word(p.placement)),
      fmt::format("per_device_batch_size={}",
                  static_cast<double>(row.batch_rows) / static_cast<double>(p.ranks())),
      fmt::format("gradient_accumulation_steps={}", row.accumulation)};
  return words;
}

PlanRow price(const Job& job, CountCache& cache) {
  const RunConfig& run = job.config.run;
  const Counts& counts = cache.of(job);
  PlanRow row;
  row.parallel = run.parallel;
  row.batch_rows = run.data.global_batch_rows;
  row.accumulation = run.data.gradient_accumulation_steps;
  row.remat_policy = job.config.remat_policy;
  row.cost = estimate(job, counts);
  row.memory = plan_memory(job, counts);
  row.step_seconds = row.cost.step_seconds();
  const int64_t tokens = run.data.sequence_length * row.batch_rows * row.accumulation;
  row.tokens_per_second = static_cast<double>(tokens) / row.step_seconds;
  row.mfu = row.cost.model_teraflops / row.step_seconds / job.hardware.tflops;
  row.fits = row.memory.total() <= job.hardware.memory_gib * kGib;
  return row;
}

std::vector<PlanRow> search(const Job& job, CountCache& cache) {
  return Search(job, cache).run();
}

std::string compare(const PlanRow& row, const PlanRow& other) {
  std::vector<CostItem> changes;
  for (const PlanRow* one : {&row, &other}) {
    for (const CostItem& item : one->cost.items) {
      const bool is_there = std::any_of(changes.begin(), changes.end(),
                                        [&](const CostItem& c) { return c.name == item.name; });
      if (is_there) continue;
      changes.push_back({item.name, row.cost.seconds(item.name) - other.cost.seconds(item.name)});
    }
  }
  std::stable_sort(changes.begin(), changes.end(), [](const CostItem& a, const CostItem& b) {
    return std::fabs(a.seconds) > std::fabs(b.seconds);
  });
  constexpr size_t kMost = 4;
  constexpr double kLeast = 0.02;  // of the largest: less is no reason
  std::vector<std::string> reasons;
  for (const CostItem& change : changes) {
    if (reasons.size() == kMost || change.seconds == 0 ||
        std::fabs(change.seconds) < kLeast * std::fabs(changes[0].seconds)) {
      break;
    }
    reasons.push_back(fmt::format("{} {:+.3g} s", change.name, change.seconds));
  }
  const double difference = row.step_seconds - other.step_seconds;
  return fmt::format(
      "{} takes {:.3g} s {} than {}: {}", name_with_placement(row.parallel), std::fabs(difference),
      difference <= 0 ? "less" : "more", name_with_placement(other.parallel),
      reasons.empty() ? "no item differs" : fmt::format("{}", fmt::join(reasons, ", ")));
}

}  // namespace odyssey
