// SPDX-License-Identifier: Apache-2.0
#include "odyssey/plan/cpu_cost.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "odyssey/base/error.h"
#include "odyssey/plan/rank_script.h"
#include "odyssey/schedule/run_layout.h"

namespace odyssey {
namespace {

constexpr int kMostGroup = 64;  // ranks of a context group

double real(int64_t number) {
  return static_cast<double>(number);
}

// A context group and its part of the cores of its hosts.
ModelCores cores_of(const Job& job, double ranks, int group, bool has_threads) {
  const double per_host = real(job.hardware.rates->cores_per_host);
  const double hosts = std::max(1.0, real(job.hardware.cores_in_all) / per_host);
  const auto ranks_per_host = static_cast<int64_t>(std::max(1.0, ranks / hosts));
  ModelCores cores;
  cores.ranks_per_host = static_cast<int>(std::min<int64_t>(ranks_per_host, group));
  cores.cores = per_host * cores.ranks_per_host / real(ranks_per_host);
  // Ranks of the trainer have as many threads as cores are theirs.
  if (has_threads) cores.most_of_rank = std::max(1.0, std::floor(per_host / real(ranks_per_host)));
  return cores;
}

// Everything around attention, of one rank and micro-batch: seconds of a core.
struct StepWork {
  double linear = 0, rows = 0, weights = 0;
  double optimizer = 0;  // of a step
};

StepWork step_work(const Job& job, const Counts& counts, const CpuRates& rates) {
  const ModelConfig& model = job.config.run.model;
  const double layers = real(model.layers), tokens = real(counts.rank_tokens);
  const double e = real(model.embedding), f = real(model.mlp), v = real(model.vocabulary);
  const double queries = real(model.query_heads * model.head_size);
  const double keys = real(model.kv_heads * model.head_size);
  const double bytes = model.data_type == DataType::kFloat32 ? 4 : 2;
  StepWork work;
  // Products with the weights of a layer, each of 2 operations a weight and token: forward, again
  // for backward all but the last, and two backward. Of the head: forward and two backward.
  const double down = e * f, others = e * (2 * queries + 2 * keys) + 2 * e * f;
  const double products = layers * (4 * others + 3 * down) + 3 * e * v;
  work.linear = products * (2 * tokens * rates.linear_flop + rates.linear_weight);
  // Two norms and two residual sums a layer, RoPE of q and k, the gated activation; one more norm
  // and the cross entropy at the end.
  const double norms = (2 * layers + 1) * e, sums = 2 * layers * e * 3 * bytes * rates.pass_byte;
  work.rows =
      tokens * (norms * rates.norm_element + sums + layers * (queries + keys) * rates.rope_element +
                layers * f * rates.activation_element + v * rates.logit_element);
  // Each weight is gathered for forward and for backward and turned to the compute type; gradients
  // are summed in fp32 and scattered.
  const double parameters = real(counts.parameters), n = real(counts.sharing_ranks);
  const double received = parameters * (n - 1) / n;
  const double messages = 3 * (n - 1) * (layers + 2);
  work.weights = received * ((2 * bytes + 4) * rates.gather.byte + 12 * rates.pass_byte) +
                 messages * rates.gather.message +
                 2 * parameters / n * (4 + bytes) * rates.pass_byte;
  work.optimizer = parameters / n * rates.parameter;
  return work;
}

void refuse_other_type(const Job& job, const CpuRates& rates) {
  if (job.config.run.model.data_type == rates.data_type) return;
  const auto name = [](DataType type) {
    return type == DataType::kFloat32 ? "float32" : "bfloat16";
  };
  throw user_error("dtype",
                   fmt::format("{}, with which hardware={} was measured", name(rates.data_type),
                               job.hardware.name),
                   name(job.config.run.model.data_type),
                   "Measure it again: odyssey calibrate dtype=TYPE --output FILE.yml.");
}

// Attention of all layers, of one micro-batch: seconds of the group.
struct AttentionTimes {
  double attention = 0, transfers = 0, exchanges = 0, copies = 0, waiting = 0;
};

// Adds the layers of one mask.
void add_layers(const Job& job, const Counts& counts, const MaskShare& share, Scope scope,
                const ModelCores& cores, double together, AttentionTimes& times) {
  const RunConfig& run = job.config.run;
  const AttentionLayout layout = with_mask(run_layout(run, counts.rows), share.mask);
  const int ring = layout.ring_size(), ulysses = layout.ulysses_size();
  const HostMap hosts{ring, ulysses, run.parallel.ring_nodes, run.parallel.ulysses_nodes,
                      cores.ranks_per_host};
  std::vector<std::vector<RankAction>> actions(static_cast<size_t>(ring * ulysses));
  RankScript all;  // sums
  for (int r = 0; r < ring; ++r) {
    for (int u = 0; u < ulysses; ++u) {
      // The trainer computes forward again in front of backward.
      RankScript script =
          attention_script(*job.hardware.rates, layout, hosts, r, u, scope == Scope::kStep ? 2 : 1,
                           scope != Scope::kAttentionForward);
      all.attention += script.attention;
      all.transfers += script.transfers;
      all.exchanges += script.exchanges;
      all.copies += script.copies;
      actions[static_cast<size_t>(hosts.place(r, u))] = std::move(script.actions);
    }
  }
  const RankTimes ranks = run_ranks(actions, cores);
  const double layers = real(share.layers);
  times.attention += layers * all.attention / together;
  times.transfers += layers * all.transfers / together;
  times.exchanges += layers * all.exchanges / together;
  times.copies += layers * all.copies / together;
  times.waiting += layers * std::max(0.0, ranks.seconds - ranks.all / together);
}

}  // namespace

bool was_measured(const Job& job) {
  const ParallelConfig& parallel = job.config.run.parallel;
  return job.hardware.rates.has_value() && parallel.ring_size * parallel.ulysses_size <= kMostGroup;
}

Cost estimate_on_cores(const Job& job, const Counts& counts, Scope scope) {
  const RunConfig& run = job.config.run;
  const CpuRates& rates = *job.hardware.rates;
  refuse_other_type(job, rates);
  const bool is_step = scope == Scope::kStep;
  const int group = run.parallel.ring_size * run.parallel.ulysses_size;
  const ModelCores cores = cores_of(job, real(counts.ranks), group, is_step);
  const double rank_cores = std::min(cores.cores / cores.ranks_per_host, cores.most_of_rank);
  AttentionTimes times;
  for (const MaskCounts& mask : counts.masks) {
    add_layers(job, counts, mask.share, scope, cores, rank_cores * group, times);
  }

  const double micro_batches = real(run.data.gradient_accumulation_steps);
  Cost cost;
  const auto add = [&](std::string_view name, double seconds) {
    cost.items.push_back({name, seconds * micro_batches});
  };
  add("attention", times.attention);
  add("transfers", times.transfers);
  add("head exchange", times.exchanges);
  add("copies", times.copies);
  add("waiting", times.waiting);
  if (is_step) {
    const StepWork work = step_work(job, counts, rates);
    add("linear", work.linear / rank_cores);
    add("norms, activations", work.rows / rank_cores);
    add("weights", work.weights / rank_cores);
    cost.items.push_back({"optimizer", work.optimizer / rank_cores});
  }
  return cost;
}

CallParts call_parts_on_cores(const Job& job, const Counts& counts, const MaskCounts& mask) {
  const RunConfig& run = job.config.run;
  const CpuRates& rates = *job.hardware.rates;
  const TransferCounts& t = mask.transfers;
  const double bytes = run.model.data_type == DataType::kFloat32 ? 4 : 2;
  const double cores = std::min(1.0, real(job.hardware.cores_in_all) / real(counts.ranks));
  const double scale = real(run.model.head_size) / real(rates.head_size);
  CallParts parts;
  parts.tile = real(counts.head_rows * mask.forward.tile.queries * mask.forward.tile.keys) *
               rates.forward.pair * scale / cores;
  parts.exchange_in = real(t.exchange_in) * bytes * rates.exchange.byte / cores;
  parts.exchange_out = real(t.exchange_out) * bytes * rates.exchange.byte / cores;
  if (run.parallel.ring_size > 1 && run.parallel.outer_gather) {
    parts.gather = real(t.gather) * bytes * rates.shift.byte / cores;
  } else if (run.parallel.ring_size > 1) {
    parts.hop = (rates.shift.message + real(t.hop) * bytes * rates.shift.byte) / cores;
    parts.hops = t.hops;
  }
  return parts;
}

}  // namespace odyssey
