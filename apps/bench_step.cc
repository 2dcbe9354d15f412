// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_step.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "apps/bench_json.h"
#include "apps/bench_ranks.h"
#include "apps/bench_spread.h"
#include "apps/cores.h"
#include "apps/describe.h"
#include "apps/progress.h"
#include "odyssey/base/error.h"
#include "odyssey/kernels/isa.h"
#include "odyssey/kernels/peak.h"
#include "odyssey/train/memory.h"
#include "odyssey/train/trainer.h"

namespace odyssey {
namespace {

// One layout at one length.
struct Cell {
  BenchLayout layout;
  RunConfig config;
  std::vector<double> seconds;  // of each counted step

  int64_t length() const { return config.data.sequence_length; }
  int64_t tokens() const {
    return config.data.global_batch_rows * config.data.gradient_accumulation_steps * length();
  }
};

class StepSeconds final : public TrainObserver {
 public:
  explicit StepSeconds(std::vector<double>& seconds) : seconds_(seconds) {}
  // The first step warms caches and scratch memory.
  void stepped(const StepReport& report) override {
    if (report.step > 0) seconds_.push_back(report.seconds);
  }

 private:
  std::vector<double>& seconds_;
};

int ranks_of(const BenchStepCommand& command, int64_t processes) {
  constexpr int kDefaultThreadRanks = 8;
  if (command.ranks == 0) return processes == 0 ? kDefaultThreadRanks : static_cast<int>(processes);
  if (processes > 0 && command.ranks > processes) {
    throw user_error("--ranks", fmt::format("at most the {} processes started", processes),
                     fmt::format("{}", command.ranks),
                     "Start more processes, or take fewer ranks.");
  }
  return command.ranks;
}

RunConfig make_config(const BenchStepCommand& command, const BenchLayout& layout, int64_t length) {
  std::vector<std::string> words = command.key_values;
  for (const std::string& word : words_of(layout)) words.push_back(word);
  if (length > 0) words.push_back(fmt::format("max_target_length={}", length));
  words.push_back(fmt::format("steps={}", command.steps + 1));
  return make_run_config(command.yml, words, int64_t{layout.ring} * layout.ulysses);
}

// Row by row of the table.
std::vector<Cell> make_cells(const BenchStepCommand& command, int64_t processes) {
  refuse_layout_keys(command.key_values, "step", {"steps", "metrics_file", "run_name"});
  const int ranks = ranks_of(command, processes);
  // Any layout tells the masks. Layouts are those of full attention only where all layers are full.
  const ModelConfig model = make_config(command, {Strategy::kRing, ranks, 1},
                                        command.lengths.empty() ? 0 : command.lengths[0])
                                .model;
  const bool is_full = std::ranges::all_of(
      model.masks, [](const MaskRule& mask) { return mask.kind == MaskKind::kFull; });
  const MaskKind mask = is_full ? MaskKind::kFull : MaskKind::kCausal;
  std::vector<int64_t> lengths = command.lengths;
  if (lengths.empty()) lengths = {0};
  std::vector<Cell> cells;
  for (const BenchLayout& layout : bench_layouts(ranks, command.choice, mask)) {
    for (const int64_t length : lengths) {
      cells.push_back({layout, make_config(command, layout, length), {}});
    }
  }
  if (cells.empty()) refuse_no_layout({ranks}, "step");
  return cells;
}

void check_memory(const std::vector<Cell>& cells, int ranks_here) {
  const int64_t available = available_memory();
  for (const Cell& cell : cells) {
    const int64_t needed =
        memory_need(cell.config).of_rank() * std::min(cell.config.parallel.ranks(), ranks_here);
    if (needed <= available) continue;
    throw user_error(
        "memory of the table",
        fmt::format("at most the {} that are free on this machine", readable_bytes(available)),
        fmt::format("{} ({}, S {})", readable_bytes(needed), describe(cell.config.parallel),
                    cell.length()),
        "Give smaller --lengths, fewer --ranks or a smaller model.");
  }
}

void train_once(const BenchRanks& ranks, Cell& cell) {
  ranks.run(cell.config.parallel.ranks(), [&](Group& group) {
    choose_thread_count(group);
    if (group.rank() == 0) {
      StepSeconds observer(cell.seconds);
      train(cell.config, group, observer);
    } else {
      TrainObserver silent;
      train(cell.config, group, silent);
    }
  });
}

JsonLine json_line(const Cell& cell, int repeats) {
  const ModelConfig& model = cell.config.model;
  const Spread seconds = spread_of(cell.seconds);
  JsonLine line;
  line.add("strategy", name_of(cell.layout.strategy))
      .add("ring", cell.layout.ring)
      .add("ulysses", cell.layout.ulysses)
      .add("load_balance", cell.layout.placement == PlacementKind::kContiguous ? "false" : "true")
      .add("reorder", name_of(cell.layout.placement))
      .add("ranks", cell.config.parallel.ranks())
      .add("length", cell.length())
      .add("rows", cell.config.data.global_batch_rows)
      .add("dtype", name_of(model.data_type))
      .add("mask", describe_masks(model))
      .add("isa", name_of(isa_in_use()))
      .add("repeats", repeats)
      .add("steps", static_cast<int64_t>(cell.seconds.size()))
      .add("median_step_seconds", seconds.median)
      .add("min_step_seconds", seconds.least)
      .add("max_step_seconds", seconds.most)
      .add("tokens_per_second", static_cast<double>(cell.tokens()) / seconds.median);
  return line;
}

std::string row_name(const BenchLayout& layout) {
  if (layout.strategy != Strategy::kUsp) return std::string(name_of(layout.strategy));
  return fmt::format("usp {}x{}", layout.ring, layout.ulysses);
}

// Markdown; cells come row by row.
void print_table(const std::vector<Cell>& cells, size_t columns) {
  fmt::print("\n| strategy | placement |");
  for (size_t i = 0; i < columns; ++i) fmt::print(" S {} |", cells[i].length());
  fmt::print("\n|---|---|");
  for (size_t i = 0; i < columns; ++i) fmt::print("---:|");
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i % columns == 0) {
      fmt::print("\n| {} | {} |", row_name(cells[i].layout), name_of(cells[i].layout.placement));
    }
    fmt::print(" {:.3f} |", spread_of(cells[i].seconds).median);
  }
  fmt::print("\n");
}

void measure(const BenchStepCommand& command, std::vector<Cell>& cells, const BenchRanks& ranks) {
  const int ranks_here =
      ranks.is_mpi() ? ranks_on_this_host(ranks.world()) : cells.front().config.parallel.ranks();
  std::unique_ptr<BenchJson> json;
  on_rank_0(ranks.world(), [&] {
    check_memory(cells, ranks_here);
    json = std::make_unique<BenchJson>(command.json);
  });
  const RunConfig& config = cells.front().config;
  if (ranks.prints()) {
    fmt::print(
        "{}median seconds of a training step, of {} x {}: {}, {} parameters, {}, {}; {} ranks, "
        "which are {}; kernels: {}\n",
        describe_notes(config), command.repeats, command.steps, config.model.name,
        readable_count(parameter_count(config.model)), name_of(config.model.data_type),
        describe_masks(config.model), config.parallel.ranks(),
        ranks.is_mpi() ? "processes" : "threads", name_of(isa_in_use()));
    std::fflush(stdout);
  }
  ProgressLine progress;
  const auto total = static_cast<int64_t>(cells.size()) * command.repeats;
  int64_t done = 0;
  for (int repeat = 0; repeat < command.repeats; ++repeat) {
    for (Cell& cell : cells) {
      train_once(ranks, cell);
      if (ranks.prints()) progress.show(++done, total, -1);
    }
  }
  progress.clear();
  if (!ranks.prints()) return;
  print_table(cells, command.lengths.empty() ? 1 : command.lengths.size());
  for (const Cell& cell : cells) json->write(json_line(cell, command.repeats));
}

}  // namespace

int run_bench_step(const BenchStepCommand& command, Engine engine) {
  std::vector<Cell> cells;
  bool is_mpi = false;
  const auto configure = [&](int64_t processes) {
    isa_in_use();  // refuses a wrong ODYSSEY_MAX_ISA
    is_mpi = processes > 0;
    cells = make_cells(command, processes);
    RunConfig config = cells.front().config;
    // Rows make their own threads.
    config.parallel = {};
    for (const Cell& cell : cells) config.hash = config.hash * 0x100000001b3U + cell.config.hash;
    return config;
  };
  return launch({engine, 0}, configure, [&](const RunConfig& config, Group& world) {
    measure(command, cells, BenchRanks(world, is_mpi, config.comm_timeout_seconds));
    return kExitDone;
  });
}

}  // namespace odyssey
