// SPDX-License-Identifier: Apache-2.0
#include "apps/check_command.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include <fmt/core.h>

#include "apps/check_cases.h"
#include "apps/describe.h"
#include "odyssey/comm/broadcast.h"
#include "odyssey/kernels/isa.h"
#include "odyssey/schedule/block_buffers.h"
#include "odyssey/schedule/checker.h"

namespace odyssey {
namespace {

// The checker and the count of pairs take time that grows with S.
constexpr int64_t kLongestSchedule = 65536;

void print_start(const RunConfig& config) {
  const ModelConfig& model = config.model;
  fmt::print("{}layout: {}\n", describe_notes(config), describe(config.parallel));
  fmt::print("heads: H {} K {} D {}; {}; kernels: {}\n", model.query_heads, model.kv_heads,
             model.head_size, name_of(model.data_type), name_of(isa_in_use()));
  const HeadMap heads(model.query_heads, model.kv_heads, config.parallel.ulysses_size);
  int64_t most_keys = 0;
  for (int u = 0; u < heads.ulysses_size(); ++u) most_keys = std::max(most_keys, heads.kv_count(u));
  fmt::print(
      "heads of a rank: at most {} query, {} key/value; busiest rank {:.2f} x and {:.2f} x the "
      "mean\n",
      heads.query_count(0), most_keys, heads.query_imbalance(), heads.kv_imbalance());
}

// What all ranks send in one forward and backward of a layer; where masks differ, of the mean of
// all layers.
SentBytes sent_by_all(const AttentionLayout& layout, const std::vector<MaskShare>& masks) {
  SentBytes all;
  int64_t layers = 0;
  for (const MaskShare& share : masks) {
    layers += share.layers;
    for (int r = 0; r < layout.ring_size(); ++r) {
      for (int u = 0; u < layout.ulysses_size(); ++u) {
        const SentBytes rank = sent_bytes(with_mask(layout, share.mask), r, u);
        all.needed += rank.needed * share.layers;
        all.untrimmed += rank.untrimmed * share.layers;
      }
    }
  }
  return {all.needed / layers, all.untrimmed / layers};
}

void print_bytes(const AttentionLayout& layout, const AttentionLayout& mixed_layout,
                 const std::vector<MaskShare>& masks) {
  std::vector<MaskRule> rules;
  rules.reserve(masks.size());
  for (const MaskShare& share : masks) rules.push_back(share.mask);
  const SentBytes all = sent_by_all(layout, masks);
  fmt::print(
      "one forward and backward{}: all ranks send {}, {} less than whole blocks to everybody; "
      "rows of 20 documents {}; blocks take at most {} on a rank\n",
      masks.size() > 1 ? " of a mean layer" : "", readable_bytes(all.needed),
      readable_bytes(all.saved()), readable_bytes(sent_by_all(mixed_layout, masks).needed),
      readable_bytes(most_block_buffer_bytes(mixed_layout, rules)));
}

// The layout at its own length, for rows of one document and for mixed rows. True when the
// schedules are right.
bool print_schedule(const RunConfig& config, AttentionProblem problem) {
  problem.length = std::min(config.data.sequence_length, kLongestSchedule);
  const AttentionLayout layout = attention_layout(config, problem);
  problem.segments = mixed_documents(problem.batch, problem.length);
  const AttentionLayout mixed_layout = attention_layout(config, problem);
  const std::vector<MaskShare> masks = mask_shares(config.model);
  for (const MaskShare& share : masks) {
    for (const AttentionLayout* any : {&layout, &mixed_layout}) {
      const std::string fault = find_fault(with_mask(*any, share.mask));
      if (fault.empty()) continue;
      fmt::print("schedule at S {}, {}: FAILED: {}\n", problem.length, name_of(share.mask.kind),
                 fault);
      return false;
    }
  }
  const WorkBalance one = work_balance(layout, {}, masks);
  fmt::print(
      "schedule at S {}: every visible pair exactly once, no rank waits for ever; "
      "busiest rank {:.2f} x the mean work\n",
      problem.length, one.total);
  const WorkBalance mixed =
      work_balance(layout, mixed_documents(layout.batch, problem.length), masks);
  fmt::print(
      "balance: hop by hop {:.2f} x; rows of 20 documents of mixed lengths {:.2f} x, hop by hop "
      "{:.2f} x\n",
      one.by_hop, mixed.total, mixed.by_hop);
  print_bytes(layout, mixed_layout, masks);
  return true;
}

void print_heading(DataType type, bool sinks) {
  fmt::print("\nErrors against dense fp64 attention, 1.00 = allowed: {}\n",
             type == DataType::kFloat32
                 ? "1e-5 x (1 + |expected|) of each element"
                 : "1.2 x the root mean square error of one rank and 2 x its largest; lse 2e-4");
  fmt::print("{:<24} {:>6}  {:<14} {:>7} {:>7} {:>7} {:>7} {:>7}{}\n", "case", "S", "mask", "out",
             "lse", "dquery", "dkey", "dvalue", sinks ? "  dsinks" : "");
}

void print_row(const CheckCase& check_case, const CheckResult& result) {
  const std::string first =
      fmt::format("{:<24} {:>6}  {:<14}", check_case.name, check_case.problem.length,
                  name_of(check_case.config.model.masks.front().kind));
  if (!result.fault.empty()) {
    fmt::print("{} FAILED: schedule: {}\n", first, result.fault);
  } else {
    fmt::print("{} {:>7.2f} {:>7.2f} {:>7.2f} {:>7.2f} {:>7.2f}{}  {}\n", first, result.out,
               result.lse, result.dquery, result.dkey, result.dvalue,
               check_case.problem.sinks.empty() ? "" : fmt::format(" {:>7.2f}", result.dsinks),
               result.ok() ? "ok" : "FAILED");
  }
  std::fflush(stdout);
}

int check_on_ranks(const RunConfig& config, Group& world) {
  const bool prints = world.rank() == 0;
  const std::vector<CheckCase> cases = make_check_cases(config);
  const std::unique_ptr<Group> alone = world.split(world.rank(), "one rank");
  int64_t failures = 0;
  if (prints) {
    print_start(config);
    if (!print_schedule(config, cases.front().problem)) ++failures;
    print_heading(config.model.data_type, config.model.attention_sink);
  }
  for (const CheckCase& check_case : cases) {
    const CheckResult result = run_check_case(check_case, world, *alone);
    if (!result.ok()) ++failures;
    if (prints) print_row(check_case, result);
  }
  // Rank 0 alone knows the results.
  broadcast(world, std::as_writable_bytes(std::span(&failures, 1)), 0);
  if (prints) {
    fmt::print("{}\n", failures == 0
                           ? fmt::format("all {} cases equal dense attention", cases.size())
                           : fmt::format("FAILED: {} of {} cases", failures, cases.size()));
  }
  return failures == 0 ? kExitDone : kExitFailed;
}

}  // namespace

int run_check_command(const CheckCommand& command, const LaunchOptions& options) {
  const auto configure = [&](int64_t available_ranks) {
    isa_in_use();  // refuses a wrong ODYSSEY_MAX_ISA
    return make_run_config(command.yml, command.key_values, available_ranks);
  };
  return launch(options, configure, check_on_ranks);
}

}  // namespace odyssey
