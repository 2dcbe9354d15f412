// SPDX-License-Identifier: Apache-2.0
#include "apps/calibrate_calls.h"

#include <algorithm>

#include <fmt/core.h>

#include "odyssey/plan/rank_script.h"

namespace odyssey {
namespace {

// Seconds of a core that the rates give a rank, mean of the ranks: attention, exchanges, the rest.
std::vector<double> parts_of(const BenchAttentionRow& row, const CpuRates& rates,
                             int ranks_per_host) {
  const AttentionLayout layout = row.layout();
  const HostMap hosts{layout.ring_size(), layout.ulysses_size(), 1, 1, ranks_per_host};
  std::vector<double> parts(3, 0);
  for (int r = 0; r < layout.ring_size(); ++r) {
    for (int u = 0; u < layout.ulysses_size(); ++u) {
      const RankScript script = attention_script(rates, layout, hosts, r, u, 1, true);
      parts[0] += script.attention / row.ranks();
      parts[1] += script.exchanges / row.ranks();
      parts[2] += (script.transfers + script.copies) / row.ranks();
    }
  }
  return parts;
}

}  // namespace

std::vector<BenchAttentionRow> calibration_rows(const AttentionShape& shape, int ranks, bool quick,
                                                int64_t processes) {
  BenchAttentionCommand command;
  command.key_values = {
      fmt::format("base_num_query_heads={}", shape.query_heads),
      fmt::format("base_num_kv_heads={}", shape.kv_heads),
      fmt::format("head_dim={}", shape.head_size),
      fmt::format("dtype={}", shape.data_type == DataType::kFloat32 ? "float32" : "bfloat16")};
  command.ranks = {ranks};
  const int64_t shorter = quick ? 64 : 384, longer = 2 * shorter;  // tokens of a rank
  command.lengths = {shorter * ranks, longer * ranks};
  command.choice.strategies = {Strategy::kAllGather, Strategy::kRing, Strategy::kUlysses};
  command.choice.placements = {PlacementKind::kDualChunkSwap};
  std::vector<BenchAttentionRow> rows = bench_attention_rows(command, processes);
  std::erase_if(rows, [&](const BenchAttentionRow& row) { return row.ranks() != ranks; });
  return rows;
}

CallFactors fit_calls(const std::vector<BenchAttentionRow>& rows, const CpuRates& rates,
                      int ranks_per_host, const std::vector<double>& cpu_seconds) {
  // Beyond these something else was measured.
  constexpr double kLeast = 0.5, kMost = 4;
  // Transfers and copies are a few percent of a call: without this its noise would decide on them.
  constexpr double kPull = 0.05;
  std::vector<std::vector<double>> counts;
  counts.reserve(rows.size());
  for (const BenchAttentionRow& row : rows) {
    counts.push_back(parts_of(row, rates, ranks_per_host));
  }
  const RateFit fit = fit_rates(counts, cpu_seconds, kPull);
  const auto factor = [&](size_t part) {
    const bool is_there = std::any_of(counts.begin(), counts.end(),
                                      [&](const auto& count) { return count[part] > 0; });
    return is_there ? std::clamp(fit.rates[part], kLeast, kMost) : 1;
  };
  return {factor(0), factor(1), factor(2), fit.quality};
}

void apply(const CallFactors& factors, CpuRates& rates) {
  for (BlockRates* block : {&rates.forward, &rates.backward}) {
    for (double* rate : {&block->pair, &block->query_row, &block->key_row, &block->call}) {
      *rate *= factors.attention;
    }
  }
  for (double* rate : {&rates.exchange.message, &rates.exchange.byte}) *rate *= factors.exchanges;
  for (double* rate : {&rates.shift.message, &rates.shift.byte, &rates.pass_byte}) {
    *rate *= factors.rest;
  }
}

}  // namespace odyssey
