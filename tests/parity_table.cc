// SPDX-License-Identifier: Apache-2.0
// Trains configs/parity.yml on every layout through the program itself and prints how far losses
// and gradient norms are from those of one rank. usage: parity_table PROGRAM CONFIG [MPIEXEC] Exit
// code 1 when a loss differs by more than 1e-5 or a gradient norm by more than 1e-4, relative.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <unistd.h>

namespace {

constexpr double kLossTolerance = 1e-5;
constexpr double kNormTolerance = 1e-4;

struct Layout {
  std::string strategy;
  std::string placement;  // "contiguous" or a reorder strategy
  int ring = 1, ulysses = 1;
  int ranks() const { return ring * ulysses; }
};

struct Curve {
  std::vector<double> losses, norms;
};

class Runner {
 public:
  Runner(std::string program, std::string config, std::string mpiexec)
      : program_(std::move(program)), config_(std::move(config)), mpiexec_(std::move(mpiexec)) {
    metrics_ =
        std::filesystem::temp_directory_path() / fmt::format("odyssey_parity_{}.jsonl", getpid());
  }
  ~Runner() { std::filesystem::remove(metrics_); }

  Curve run(const Layout& layout, bool mpi) const {
    const bool usp = layout.strategy == "usp";
    const bool balance = layout.placement != "contiguous";
    std::string command;
    if (mpi) command = fmt::format("{} -n {} ", mpiexec_, layout.ranks());
    command += fmt::format(
        "{} train {} per_device_batch_size={} context_parallel_strategy={} "
        "ici_context_parallelism={} "
        "ici_context_usp_ulysses_parallelism={} context_parallel_load_balance={} "
        "context_parallel_reorder_strategy={} run_name=parity metrics_file={} 2>&1 >/dev/null",
        program_, config_, 1.0 / layout.ranks(), layout.strategy,
        usp ? layout.ring : layout.ranks(), usp ? layout.ulysses : 1, balance,
        balance ? layout.placement : "auto", metrics_.string());
    if (std::system(command.c_str()) != 0) {
      fmt::print("failed: {}\n", command);
      std::exit(1);
    }
    return read();
  }

 private:
  static double value_of(const std::string& line, const std::string& key) {
    const size_t at = line.find("\"" + key + "\":");
    return at == std::string::npos ? NAN : std::strtod(line.c_str() + at + key.size() + 3, nullptr);
  }
  Curve read() const {
    Curve curve;
    std::ifstream file(metrics_);
    for (std::string line; std::getline(file, line);) {
      curve.losses.push_back(value_of(line, "learning/loss"));
      curve.norms.push_back(value_of(line, "learning/raw_grad_norm"));
    }
    return curve;
  }

  std::string program_, config_, mpiexec_;
  std::filesystem::path metrics_;
};

double worst_difference(const std::vector<double>& got, const std::vector<double>& expected) {
  if (got.size() != expected.size() || got.empty()) return NAN;
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double difference = std::abs(got[i] - expected[i]) / std::abs(expected[i]);
    if (!(difference <= worst)) worst = difference;  // NaN stays
  }
  return worst;
}

// The layout of a strategy on that many ranks; ranks 0 where it does not apply.
Layout layout_of(const std::string& strategy, const std::string& placement, int ranks) {
  if (strategy == "ulysses") return {strategy, placement, 1, ranks};
  if (strategy != "usp") return {strategy, placement, ranks, 1};
  if (ranks % 2 != 0 || ranks < 4) return {strategy, placement, 0, 0};
  return {strategy, placement, ranks / 2, 2};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: parity_table PROGRAM CONFIG [MPIEXEC]\n");
    return 2;
  }
  const bool with_mpi = argc > 3 && *argv[3] != '\0';
  const Runner runner(argv[1], argv[2], with_mpi ? argv[3] : "");
  const Curve one = runner.run({"ring", "contiguous", 1, 1}, false);
  fmt::print("One rank, losses:");
  for (double loss : one.losses) fmt::print(" {:.6f}", loss);
  fmt::print("\n\nWorst relative difference of {} losses / gradient norms from one rank:\n\n",
             one.losses.size());

  struct Column {
    int ranks;
    bool mpi;
  };
  std::vector<Column> columns = {{1, false}, {2, false}, {3, false}, {4, false}, {8, false}};
  if (with_mpi) columns.insert(columns.end(), {{2, true}, {4, true}});
  fmt::print("| strategy | placement |");
  for (const Column& c : columns)
    fmt::print(" {} {} |", c.ranks, c.mpi ? "MPI" : c.ranks == 1 ? "thread" : "threads");
  fmt::print("\n|---|---|");
  for (size_t i = 0; i < columns.size(); ++i) fmt::print("---|");
  fmt::print("\n");
  int failures = 0, cells = 0;
  for (const std::string strategy : {"all_gather", "ring", "ulysses", "usp"}) {
    for (const std::string placement : {"contiguous", "dual_chunk_swap", "striped"}) {
      // Under ulysses the placement is always contiguous.
      if (strategy == "ulysses" && placement != "contiguous") continue;
      fmt::print("| {} | {} |", strategy, placement);
      for (const Column& column : columns) {
        const Layout layout = layout_of(strategy, placement, column.ranks);
        if (layout.ranks() == 0) {
          fmt::print(" – |");
          continue;
        }
        const Curve curve = runner.run(layout, column.mpi);
        const double loss = worst_difference(curve.losses, one.losses);
        const double norm = worst_difference(curve.norms, one.norms);
        const bool good = loss <= kLossTolerance && norm <= kNormTolerance;
        failures += !good;
        ++cells;
        fmt::print(" {:.0e} / {:.0e}{} |", loss, norm, good ? "" : " FAILED");
        std::fflush(stdout);
      }
      fmt::print("\n");
    }
  }
  fmt::print("\n{} of {} layouts agree to 1e-5 in losses and 1e-4 in gradient norms.\n",
             cells - failures, cells);
  return failures == 0 ? 0 : 1;
}
