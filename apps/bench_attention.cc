// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_attention.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include <fmt/format.h>

#include "apps/bench_json.h"
#include "apps/bench_spread.h"
#include "apps/cores.h"
#include "apps/describe.h"
#include "apps/progress.h"
#include "odyssey/base/error.h"
#include "odyssey/kernels/isa.h"

namespace odyssey {
namespace {

// What one row was, over all repeats, and what it is held against.
struct Measured {
  BenchAttentionRow row;
  BenchAttentionWork work;
  std::vector<BenchAttentionRun> runs;
  // Indices of the dense rows of the same length: with one thread, and with as many threads as the
  // cores that the ranks have. The second is -1 where one rank can't have them.
  int dense = 0, dense_same_cores = 0;

  Spread of(double BenchAttentionRun::*value) const {
    std::vector<double> values;
    for (const BenchAttentionRun& run : runs) values.push_back(run.*value);
    return spread_of(values);
  }
  double median(double BenchAttentionRun::*value) const { return of(value).median; }
  // Median over the repeats of value(mine) / value(other), so that both are of the same minutes.
  template <class Value>
  double against(const Measured& other, const Value& value) const {
    std::vector<double> ratios;
    for (size_t i = 0; i < runs.size(); ++i)
      ratios.push_back(value(runs[i]) / value(other.runs[i]));
    return spread_of(ratios).median;
  }
  // A clock of one thread tells nothing of its helpers.
  bool has_cpu() const { return row.threads == 1; }
  double waiting_share() const {
    return median(&BenchAttentionRun::waiting_seconds) / median(&BenchAttentionRun::seconds);
  }
  // 4 D forward and 10 D backward for each visible pair and head.
  double tflops() const {
    return 14e-12 * static_cast<double>(row.config.model.head_size) * work.pairs_times_heads /
           median(&BenchAttentionRun::seconds);
  }
  double bytes_saved() const {
    return work.full_bytes - median(&BenchAttentionRun::mean_bytes_sent);
  }
};

// All that is printed of a row beside its name; -1 where there is no such number.
struct Figures {
  double cpu_overhead = -1, wall_overhead = -1;
};

Figures figures_of(const Measured& row, const std::vector<Measured>& all) {
  Figures figures;
  if (row.has_cpu()) {
    figures.cpu_overhead = row.against(all[row.dense], [](const BenchAttentionRun& run) {
      return run.forward_cpu_seconds + run.backward_cpu_seconds;
    });
  }
  if (row.dense_same_cores >= 0) {
    figures.wall_overhead = row.against(all[row.dense_same_cores],
                                        [](const BenchAttentionRun& run) { return run.seconds; });
  }
  return figures;
}

std::string_view strategy_of(const BenchAttentionRow& row) {
  return row.dense ? "dense" : name_of(row.config.parallel.strategy);
}

JsonLine json_line(const Measured& m, const Figures& figures, bool is_mpi) {
  const ModelConfig& model = m.row.config.model;
  const ParallelConfig& parallel = m.row.config.parallel;
  const Spread seconds = m.of(&BenchAttentionRun::seconds);
  JsonLine line;
  line.add("strategy", strategy_of(m.row))
      .add("ring", parallel.ring_size)
      .add("ulysses", parallel.ulysses_size)
      .add("placement", name_of(parallel.placement))
      .add("ranks", m.row.ranks())
      .add("threads", m.row.threads)
      .add("engine", is_mpi ? "mpi" : "threads")
      .add("isa", name_of(isa_in_use()))
      .add("dtype", name_of(model.data_type))
      .add("mask", name_of(model.masks.front().kind))
      .add("window", model.masks.front().window)
      .add("documents", m.row.segments.empty() ? int64_t{1} : m.row.segments.back())
      .add("length", m.row.length)
      .add("heads", model.query_heads)
      .add("kv_heads", model.kv_heads)
      .add("head_dim", model.head_size)
      .add("runs", static_cast<int64_t>(m.runs.size()))
      .add("median_seconds", seconds.median)
      .add("min_seconds", seconds.least)
      .add("max_seconds", seconds.most);
  if (m.has_cpu()) {
    line.add("cpu_seconds_busiest", m.median(&BenchAttentionRun::busiest_cpu_seconds))
        .add("cpu_seconds_mean", m.median(&BenchAttentionRun::mean_cpu_seconds))
        .add("forward_cpu_seconds", m.median(&BenchAttentionRun::forward_cpu_seconds))
        .add("backward_cpu_seconds", m.median(&BenchAttentionRun::backward_cpu_seconds))
        .add("cpu_overhead", figures.cpu_overhead);
  }
  if (figures.wall_overhead >= 0) line.add("wall_overhead", figures.wall_overhead);
  line.add("work_imbalance", m.work.busiest_over_mean)
      .add("bytes_sent_most", m.median(&BenchAttentionRun::most_bytes_sent))
      .add("bytes_sent_mean", m.median(&BenchAttentionRun::mean_bytes_sent))
      .add("bytes_saved_mean", m.bytes_saved())
      .add("waiting_seconds_mean", m.median(&BenchAttentionRun::waiting_seconds))
      .add("waiting_share", m.waiting_share())
      .add("tflops", m.tflops())
      .add("live_peak_tflops", m.median(&BenchAttentionRun::live_peak_tflops))
      .add("share_of_peak", m.tflops() / m.median(&BenchAttentionRun::live_peak_tflops));
  return line;
}

void print_heading() {
  fmt::print(
      "\n{:>7} {:>5} {:>7} {:<10} {:>5} {:<15} {:>26} {:>8} {:>8} {:>6} {:>6} {:>6} {:>7} "
      "{:>7} {:>8} {:>6} {:>7} {:>6}\n",
      "S", "ranks", "threads", "strategy", "R x U", "placement", "wall s (least to most)",
      "busiest", "mean cpu", "cpu x", "wall x", "work x", "MB sent", "saved", "waiting", "share",
      "TFLOP/s", "peak");
}

std::string number(double value, int digits) {
  return value < 0 ? "-" : fmt::format("{:.{}f}", value, digits);
}

void print_row(const Measured& m, const Figures& figures) {
  const ParallelConfig& parallel = m.row.config.parallel;
  const Spread seconds = m.of(&BenchAttentionRun::seconds);
  const auto cpu = [&](double BenchAttentionRun::*value) {
    return m.has_cpu() ? m.median(value) : -1;
  };
  constexpr double kMega = 1e6;
  fmt::print(
      "{:>7} {:>5} {:>7} {:<10} {:>5} {:<15} {:>26} {:>8} {:>8} {:>6} {:>6} {:>6.3f} "
      "{:>7.2f} {:>7.2f} {:>8.3f} {:>5.1f}% {:>7.3f} {:>5.1f}%\n",
      m.row.length, m.row.ranks(), m.row.threads, strategy_of(m.row),
      fmt::format("{}x{}", parallel.ring_size, parallel.ulysses_size), name_of(parallel.placement),
      fmt::format("{:.3f} ({:.3f} to {:.3f})", seconds.median, seconds.least, seconds.most),
      number(cpu(&BenchAttentionRun::busiest_cpu_seconds), 3),
      number(cpu(&BenchAttentionRun::mean_cpu_seconds), 3), number(figures.cpu_overhead, 3),
      number(figures.wall_overhead, 3), m.work.busiest_over_mean,
      m.median(&BenchAttentionRun::mean_bytes_sent) / kMega, m.bytes_saved() / kMega,
      m.median(&BenchAttentionRun::waiting_seconds), 100 * m.waiting_share(), m.tflops(),
      100 * m.tflops() / m.median(&BenchAttentionRun::live_peak_tflops));
}

// Adds the dense rows with more threads behind the dense row of their length, and finds for every
// row what it is held against.
std::vector<Measured> make_table(const std::vector<BenchAttentionRow>& rows,
                                 const BenchRanks& ranks) {
  std::vector<Measured> table;
  const auto find_dense = [&](int64_t length, int threads) {
    for (size_t i = 0; i < table.size(); ++i) {
      const BenchAttentionRow& row = table[i].row;
      if (row.dense && row.length == length && row.threads == threads) return static_cast<int>(i);
    }
    return -1;
  };
  for (const BenchAttentionRow& row : rows) {
    table.push_back({row, work_of(row), {}});
    if (!row.dense) continue;
    for (const BenchAttentionRow& other : rows) {
      const int threads = ranks.threads_in_place_of(other.ranks());
      if (threads < 2 || find_dense(row.length, threads) >= 0) continue;
      BenchAttentionRow more = row;
      more.threads = threads;
      table.push_back({more, work_of(more), {}});
    }
  }
  for (Measured& m : table) {
    m.dense = find_dense(m.row.length, 1);
    m.dense_same_cores = find_dense(
        m.row.length, m.row.dense ? m.row.threads : ranks.threads_in_place_of(m.row.ranks()));
  }
  return table;
}

void print_start(const BenchAttentionCommand& command, const RunConfig& config,
                 const BenchRanks& ranks) {
  const ModelConfig& model = config.model;
  fmt::print(
      "{}attention, forward and backward: B 1 H {} K {} D {}, {}, {}{}{}; ranks are {}; kernels: "
      "{}; {} {}, rows by turns; random data\n",
      describe_notes(config), model.query_heads, model.kv_heads, model.head_size,
      name_of(model.data_type), name_of(model.masks.front().kind),
      model.masks.front().window > 0 ? fmt::format(" {}", model.masks.front().window) : "",
      command.documents > 1 ? fmt::format(", {} documents", command.documents) : "",
      ranks.is_mpi() ? "processes" : "threads", name_of(isa_in_use()), command.repeats,
      command.repeats == 1 ? "repeat" : "repeats");
  std::fflush(stdout);
}

void measure(const BenchAttentionCommand& command, const std::vector<BenchAttentionRow>& rows,
             const BenchRanks& ranks) {
  std::unique_ptr<BenchJson> json;
  const int ranks_here =
      ranks.is_mpi() ? ranks_on_this_host(ranks.world()) : std::numeric_limits<int>::max();
  on_rank_0(ranks.world(), [&] { check_bench_memory(rows, ranks_here); });
  on_rank_0(ranks.world(), [&] { json = std::make_unique<BenchJson>(command.json); });
  std::vector<Measured> table = make_table(rows, ranks);
  if (ranks.prints()) print_start(command, rows.front().config, ranks);
  BenchAttentionRunner runner(ranks, rows);
  ProgressLine progress;
  const auto total = static_cast<int64_t>(table.size()) * command.repeats;
  int64_t done = 0;
  const double start = seconds_now(Clock::kWall);
  for (int repeat = 0; repeat < command.repeats; ++repeat) {
    for (Measured& m : table) {
      m.runs.push_back(runner.run(m.row));
      ++done;
      const double spent = seconds_now(Clock::kWall) - start;
      if (ranks.prints()) {
        progress.show(done, total,
                      spent / static_cast<double>(done) * static_cast<double>(total - done));
      }
    }
  }
  progress.clear();
  if (!ranks.prints()) return;
  print_heading();
  for (const Measured& m : table) {
    const Figures figures = figures_of(m, table);
    print_row(m, figures);
    json->write(json_line(m, figures, ranks.is_mpi()));
  }
}

}  // namespace

int run_bench_attention(const BenchAttentionCommand& command, Engine engine) {
  std::vector<BenchAttentionRow> rows;
  bool is_mpi = false;
  const auto configure = [&](int64_t processes) {
    isa_in_use();  // refuses a wrong ODYSSEY_MAX_ISA
    is_mpi = processes > 0;
    rows = bench_attention_rows(command, processes);
    RunConfig config = rows.front().config;  // of one rank: rows make their own threads
    config.hash = hash_of(command, rows);
    return config;
  };
  return launch({engine, 0}, configure, [&](const RunConfig& config, Group& world) {
    measure(command, rows, BenchRanks(world, is_mpi, config.comm_timeout_seconds));
    return kExitDone;
  });
}

}  // namespace odyssey
