// SPDX-License-Identifier: Apache-2.0
#include "apps/calibrate_command.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>

#include <fmt/core.h>

#include "apps/bench_layouts.h"
#include "apps/calibrate_probes.h"
#include "apps/cores.h"
#include "apps/describe.h"
#include "odyssey/base/error.h"
#include "odyssey/base/parallel_for.h"
#include "odyssey/io/atomic_file.h"
#include "odyssey/kernels/attention_amx.h"
#include "odyssey/kernels/attention_tile.h"
#include "odyssey/kernels/isa.h"
#include "odyssey/train/memory.h"

namespace odyssey {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;
// Small enough for the caches of this machine and its minutes; the costs are those of a head.
const std::vector<std::string> kShape = {"base_num_query_heads=8", "base_num_kv_heads=2",
                                         "head_dim=128", "dtype=bfloat16"};

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  localtime_r(&now, &date);
  return fmt::format("{:04}-{:02}-{:02}", date.tm_year + 1900, date.tm_mon + 1, date.tm_mday);
}

// A second. Rates may be 0 where no figure shows them.
double gigabytes(const TransferRates& rates) {
  constexpr double kLeast = 1e-13;
  return 1e-9 / std::max(rates.byte, kLeast);
}

// The file, complete.
std::string hardware_text(const CalibrationResult& result, const CalibrationPlan& plan,
                          bool is_mpi) {
  const std::string source = fmt::format("measured on {} by odyssey calibrate", today());
  const CpuRates& rates = result.rates;
  const AttentionShape& shape = plan.shape;
  std::string text = fmt::format(
      "# This machine, {}{}: {} {} on {} cores, kernels {},\n"
      "# H {} K {} D {} {}. All seconds are those of a core while the other cores work too, at a "
      "live\n"
      "# peak of {:.3f} TFLOP/s a core (median; {:.3f} to {:.3f} while it was measured, {} "
      "rounds).\n",
      source, plan.quick ? " --quick (rough)" : "", plan.ranks,
      is_mpi ? "processes" : "thread ranks", result.cores, name_of(isa_in_use()), shape.query_heads,
      shape.kv_heads, shape.head_size, name_of(shape.data_type), rates.live_peak_tflops,
      result.peak.least, result.peak.most, result.rounds);
  const auto quality = [&](std::string_view what, const FitQuality& fit) {
    if (fit.samples == 0) return;
    text += fmt::format("# Fit of {}: {} figures within {:.1f} % in the mean, {:.1f} % at most.\n",
                        what, fit.samples, 100 * fit.mean_error, 100 * fit.largest_error);
  };
  quality("blocks forward", result.forward);
  quality("blocks backward", result.backward);
  quality("shifts", result.shift);
  quality("head exchanges", result.exchange);
  quality("gathers", result.gather);
  quality("whole calls", result.calls.quality);
  text += fmt::format(
      "# Whole calls take {:.2f} of their kernels, {:.2f} of their exchanges, {:.2f} of transfers "
      "and passes;\n# these factors are in the figures.\n",
      result.calls.attention, result.calls.exchanges, result.calls.rest);
  const auto line = [&](std::string_view name, const std::string& value, std::string_view unit) {
    text += fmt::format("{:<40}  # {}; {}\n", fmt::format("{}: {}", name, value), unit, source);
  };
  const auto number = [](double value) { return fmt::format("{:.4g}", value); };
  const bool is_fp32 = shape.data_type == DataType::kFloat32;
  const double memory = static_cast<double>(available_memory()) / kGib;
  text += "kind: cpu\ncalibration: cpu  # used only for groups of more than 64 ranks\n";
  line("chips", fmt::format("{}", result.cores), "cores");
  line("tflops", number(is_fp32 ? result.fp32_tflops : rates.live_peak_tflops), "a core");
  text += "fp8_tflops: 0\n";
  line("fp32_tflops", number(result.fp32_tflops), "a core");
  text += "cores: 1\n";
  line("memory_gib", number(memory / static_cast<double>(rates.cores_per_host)),
       "free, a core's share");
  line("memory_gb_per_second", number(1e-9 / rates.pass_byte), "of a core, read and written");
  line("chips_per_node", fmt::format("{}", rates.cores_per_host), "cores of a host");
  line("node_gb_per_second", number(gigabytes(rates.shift)), "of a core");
  line("network_gb_per_second", number(gigabytes(rates.network)), "of a rank");
  return text + cpu_rates_text(rates, source);
}

void print_summary(const CalibrationResult& result) {
  const CpuRates& rates = result.rates;
  const double d = static_cast<double>(rates.head_size), peak = rates.live_peak_tflops;
  fmt::print(stderr,
             "live peak {:.3f} TFLOP/s a core ({:.3f} to {:.3f}); attention at {:.0f} % of it "
             "forward and {:.0f} % backward, products with weights at {:.0f} %; passes {:.1f} GB/s "
             "a core; a message {:.1f} us and {:.2f} GB/s\n",
             peak, result.peak.least, result.peak.most, 100 * 4e-12 * d / rates.forward.pair / peak,
             100 * 10e-12 * d / rates.backward.pair / peak, 100e-12 / rates.linear_flop / peak,
             1e-9 / rates.pass_byte, 1e6 * rates.shift.message, gigabytes(rates.shift));
}

// A machine that was disturbed all the time shows it: its blocks do not fit one formula.
void warn_if_disturbed(const CalibrationResult& result) {
  constexpr double kDoubtful = 0.06;
  const double error = std::max(result.forward.mean_error, result.backward.mean_error);
  if (error < kDoubtful) return;
  fmt::print(stderr,
             "note: the blocks differ from their formula by {:.0f} % in the mean, so something "
             "disturbed this machine all the time: measure again\n",
             100 * error);
}

// Queries in a tile of the kernels in use.
int64_t query_tile(DataType type, int64_t head_size) {
#if defined(__x86_64__)
  const bool on_tiles = type == DataType::kBfloat16 && isa_in_use() == Isa::kAmx;
  if (on_tiles && head_size <= amx::kMostHeadSize) return amx::kQueries;
#endif
  return kQueryTile;
}

CalibrationPlan make_plan(const CalibrateCommand& command, const RunConfig& config, Group& world,
                          bool is_mpi) {
  // More ranks than cores is what runs here, and they take caches from each other.
  constexpr int kRanksOfCore = 2;
  const ModelConfig& model = config.model;
  CalibrationPlan plan;
  const int cores = fair_threads(std::vector{usable_cores()}, 0);
  plan.ranks = is_mpi ? world.size() : kRanksOfCore * cores;
  if (command.ranks > 0) plan.ranks = static_cast<int>(command.ranks);
  plan.quick = command.quick;
  plan.shape = {model.data_type, model.query_heads, model.kv_heads, model.head_size,
                query_tile(model.data_type, model.head_size)};
  plan.calls =
      calibration_rows(plan.shape, plan.ranks, plan.quick, is_mpi ? int64_t{world.size()} : 0);
  return plan;
}

}  // namespace

int run_calibrate_command(const CalibrateCommand& command, Engine engine) {
  bool is_mpi = false;
  const auto configure = [&](int64_t processes) {
    isa_in_use();  // refuses a wrong ODYSSEY_MAX_ISA
    is_mpi = processes > 0;
    refuse_other_keys(command.key_values,
                      {"base_num_query_heads", "base_num_kv_heads", "head_dim", "dtype"},
                      "Other keys change nothing that is measured.");
    constexpr int64_t kMostRanks = 1024;
    if (command.ranks > kMostRanks) {
      throw user_error("--ranks", fmt::format("at most {}", kMostRanks),
                       fmt::format("{}", command.ranks), "See odyssey calibrate --help.");
    }
    if (is_mpi && command.ranks > processes) {
      throw user_error("--ranks", fmt::format("at most the {} processes started", processes),
                       fmt::format("{}", command.ranks),
                       "Start more processes, or take fewer ranks.");
    }
    std::vector<std::string> words = kShape;
    words.emplace_back("max_target_length=4096");
    // Later words win nothing: a key is set once.
    for (const std::string& word : command.key_values) {
      const std::string key = word.substr(0, word.find('=') + 1);
      std::erase_if(words, [&](const std::string& other) { return other.starts_with(key); });
      words.push_back(word);
    }
    return make_run_config("", words, 1);
  };
  return launch({engine, 0}, configure, [&](const RunConfig& config, Group& world) {
    const BenchRanks ranks(world, is_mpi, config.comm_timeout_seconds);
    std::unique_ptr<AtomicFile> file;
    const bool replaces = !command.output.empty() && std::filesystem::exists(command.output);
    on_rank_0(world, [&] {
      if (!command.output.empty()) file = std::make_unique<AtomicFile>(command.output);
    });
    const CalibrationPlan plan = make_plan(command, config, world, is_mpi);
    const CalibrationResult result = calibrate(ranks, plan);
    if (!ranks.prints()) return kExitDone;
    print_summary(result);
    if (!plan.quick) warn_if_disturbed(result);
    const std::string text = hardware_text(result, plan, is_mpi);
    if (file == nullptr) {
      fmt::print("{}", text);
      return kExitDone;
    }
    file->write(text);
    file->commit();
    fmt::print("{} {}\n", replaces ? "replaced" : "wrote", command.output);
    return kExitDone;
  });
}

}  // namespace odyssey
