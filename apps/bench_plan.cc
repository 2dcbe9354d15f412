// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_plan.h"

#include <cstdio>
#include <limits>
#include <map>
#include <memory>

#include <fmt/core.h>

#include "apps/attention_calls.h"
#include "apps/bench_json.h"
#include "apps/cores.h"
#include "apps/describe.h"
#include "apps/plan_check.h"
#include "apps/probe_clock.h"
#include "odyssey/base/error.h"
#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/isa.h"
#include "odyssey/plan/cost.h"
#include "odyssey/train/memory.h"

namespace odyssey {
namespace {

struct Prediction {
  double seconds = 0;
  double products = 0;  // share of attention, the other items follow no peak
};

Prediction predict(const BenchAttentionRow& row, const Hardware& hardware) {
  Job job;
  job.config.run = row.config;
  job.config.run.model.layers = 1;
  job.config.run.data.global_batch_rows = 1;
  job.hardware = hardware;
  job.calibration = load_calibration(hardware.calibration);
  const Cost cost = estimate(job, count(job), Scope::kAttention);
  const double waiting = cost.seconds("waiting"), all = cost.step_seconds();
  return {all, cost.seconds("attention") / (all - waiting)};
}

Hardware measured_hardware(const std::string& file) {
  Hardware hardware = load_hardware(file);
  if (!hardware.rates) {
    throw user_error("odyssey bench plan", "a file that odyssey calibrate wrote", file,
                     "Make one: odyssey calibrate --output FILE.yml.");
  }
  return hardware;
}

void print_heading(const BenchPlanCommand& command, const ModelConfig& model, bool is_mpi,
                   double peak) {
  fmt::print(
      "attention, forward and backward, against {}: B 1 H {} K {} D {}, {}, {}; ranks are {}\n"
      "wall seconds, median of {} rounds by turns, held to the live peak just before and after: "
      "at\n"
      "{:.3f} TFLOP/s a core, that of the file\n\n",
      command.file, model.query_heads, model.kv_heads, model.head_size, name_of(model.data_type),
      name_of(model.masks.front().kind), is_mpi ? "processes" : "threads", command.rows.repeats,
      peak);
  std::fflush(stdout);
}

// The workspaces of all rows of some ranks are there at once.
void check_memory(const std::vector<BenchAttentionRow>& rows, int ranks_here) {
  int64_t needed = 0;
  for (const BenchAttentionRow& row : rows) needed += row.bytes_needed(ranks_here);
  const int64_t available = available_memory();
  if (needed <= available) return;
  throw user_error(
      "memory of all rows",
      fmt::format("at most the {} that are free on this machine", readable_bytes(available)),
      readable_bytes(needed), "Give smaller --lengths, fewer of them, or fewer --strategies.");
}

// Rows of the same number of ranks, in their order.
std::vector<std::vector<BenchAttentionRow>> by_ranks(const std::vector<BenchAttentionRow>& rows) {
  std::map<int, std::vector<BenchAttentionRow>> groups;
  for (const BenchAttentionRow& row : rows) {
    groups[row.ranks()].push_back(row);
  }
  std::vector<std::vector<BenchAttentionRow>> result;
  result.reserve(groups.size());
  for (auto& [ranks, group] : groups) result.push_back(std::move(group));
  return result;
}

std::vector<PlanCheck> measure(const std::vector<BenchAttentionRow>& rows, const Hardware& hardware,
                               int repeats, const BenchRanks& ranks) {
  ProbeOptions options;
  const DataType type = rows.front().config.model.data_type;
  options.peak = type == DataType::kFloat32 ? fp32_peak(isa_in_use()) : bf16_peak(isa_in_use());
  options.cores = static_cast<int>(hardware.cores_in_all);
  options.least_rounds = repeats;
  options.most_seconds = 0;
  options.reference_peak = hardware.rates->live_peak_tflops;
  std::vector<PlanCheck> checks;
  std::vector<double> products;
  for (const BenchAttentionRow& row : rows) {
    const Prediction prediction = predict(row, hardware);
    products.push_back(prediction.products);
    checks.push_back({row.config.parallel, row.length, prediction.seconds, {}});
  }
  ranks.run(rows.front().ranks(), [&](Group& group) {
    set_thread_count(1);
    std::vector<Probe> probes;
    for (const auto& call : attention_calls(group, rows)) {
      probes.push_back({call, Clock::kWall, products[probes.size()]});
    }
    const ProbeTimes times = time_probes(group, probes, options);
    if (group.rank() != 0) return;
    fmt::print("{} ranks: live peak {:.3f} TFLOP/s a core ({:.3f} to {:.3f})\n", group.size(),
               times.peak.median, times.peak.least, times.peak.most);
    for (size_t i = 0; i < checks.size(); ++i) checks[i].seconds = times.seconds[i];
  });
  return checks;
}

void run_all(const BenchPlanCommand& command, const std::vector<BenchAttentionRow>& rows,
             const Hardware& hardware, const BenchRanks& ranks) {
  std::unique_ptr<BenchJson> json;
  const int ranks_here =
      ranks.is_mpi() ? ranks_on_this_host(ranks.world()) : std::numeric_limits<int>::max();
  const std::vector<std::vector<BenchAttentionRow>> groups = by_ranks(rows);
  on_rank_0(ranks.world(), [&] {
    for (const auto& group : groups) check_memory(group, ranks_here);
    json = std::make_unique<BenchJson>(command.rows.json);
  });
  if (ranks.prints()) {
    print_heading(command, rows.front().config.model, ranks.is_mpi(),
                  hardware.rates->live_peak_tflops);
  }
  std::vector<PlanCheck> checks;
  for (const auto& group : groups) {
    for (const PlanCheck& check : measure(group, hardware, command.rows.repeats, ranks)) {
      checks.push_back(check);
    }
  }
  if (!ranks.prints()) return;
  fmt::print("\n{}", plan_check_text(checks));
  write_plan_checks(checks, *json);
}

}  // namespace

int run_bench_plan(const BenchPlanCommand& command, Engine engine) {
  std::vector<BenchAttentionRow> rows;
  Hardware hardware;
  bool is_mpi = false;
  const auto configure = [&](int64_t processes) {
    is_mpi = processes > 0;
    hardware = measured_hardware(command.file);
    rows = bench_attention_rows(command.rows, processes);
    std::erase_if(rows, [](const BenchAttentionRow& row) { return row.dense; });
    if (rows.empty()) {
      throw user_error("--ranks", "at least 2", "1", "Layouts are what is compared.");
    }
    for (const BenchAttentionRow& row : rows) predict(row, hardware);  // refuses another dtype
    RunConfig config = rows.front().config;
    config.parallel = {};  // rows make their own threads
    config.hash = hash_of(command.rows, rows);
    return config;
  };
  return launch({engine, 0}, configure, [&](const RunConfig& config, Group& world) {
    run_all(command, rows, hardware, BenchRanks(world, is_mpi, config.comm_timeout_seconds));
    return kExitDone;
  });
}

}  // namespace odyssey
