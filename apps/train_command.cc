// SPDX-License-Identifier: Apache-2.0
#include "apps/train_command.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include <fmt/core.h>

#include "apps/cores.h"
#include "apps/describe.h"
#include "apps/fitting.h"
#include "apps/metrics_file.h"
#include "apps/progress.h"
#include "odyssey/base/error.h"
#include "odyssey/comm/agreement.h"
#include "odyssey/kernels/isa.h"
#include "odyssey/train/memory.h"

namespace odyssey {
namespace {

// Prints on rank 0. On a terminal the progress line stays below the lines of the steps.
class Printer final : public TrainObserver {
 public:
  Printer(const RunConfig& config, std::optional<MetricsFile>& metrics)
      : config_(config), metrics_(metrics) {}

  void started(const StartReport& report) override {
    teraflops_per_step_ = report.teraflops_per_step;
    fmt::print("{}", start_block(config_, report));
    std::fflush(stdout);
    progress_.show(0, config_.steps, -1);
  }

  void stepped(const StepReport& report) override {
    progress_.clear();
    fmt::print("{}\n", step_line(report));
    std::fflush(stdout);
    if (metrics_) metrics_->write(report, teraflops_per_step_);
    ++steps_;
    // The first step also warms up.
    if (steps_ > 1) seconds_ += report.seconds;
    const int64_t counted = steps_ > 1 ? steps_ - 1 : 1;
    const double mean = (steps_ > 1 ? seconds_ : report.seconds) / static_cast<double>(counted);
    if (steps_ < config_.steps) {
      progress_.show(steps_, config_.steps, mean * static_cast<double>(config_.steps - steps_));
    }
  }

  void finished(const FinishReport& report) override {
    progress_.clear();
    std::string text =
        fmt::format("done: {} {}", report.steps, report.steps == 1 ? "step" : "steps");
    if (report.steps > 0) {
      text += fmt::format(", median step {:.3f} s, loss {:.3f} -> {:.3f}",
                          report.median_step_seconds, report.first_loss, report.last_loss);
    }
    fmt::print("{}, {:.1f} s in all, at most {} held\n", text, report.total_seconds,
               readable_bytes(report.bytes_peak));
  }

 private:
  const RunConfig& config_;
  std::optional<MetricsFile>& metrics_;
  ProgressLine progress_;
  double teraflops_per_step_ = 0;
  int64_t steps_ = 0;
  double seconds_ = 0;  // of all steps but the first
};

std::string too_large(const TrainCommand& command, const RunConfig& config, int ranks,
                      int64_t available) {
  const MemoryNeed need = memory_need(config);
  // A twentieth is left to what no buffer counts: code, stacks, libraries.
  const std::string keys = keys_that_fit(command.yml, command.key_values, config.parallel.ring_size,
                                         config.parallel.ulysses_size, available / 20 * 19);
  const int64_t per_machine = std::max<int64_t>(available / need.of_rank(), 0);
  std::string remedy = keys.empty() ? "Take a smaller model or a shorter max_target_length"
                                    : fmt::format("These keys make it fit here: {}", keys);
  if (per_machine > 0) {
    remedy += fmt::format(
        ". Or start the {} ranks by mpirun on at least {} machines like this one.",
        config.parallel.ranks(), (config.parallel.ranks() + per_machine - 1) / per_machine);
  } else {
    remedy += ". One rank alone is too large for this machine.";
  }
  return user_error(
             "memory of this run",
             fmt::format("at most the {} that are free on this machine", readable_bytes(available)),
             fmt::format(
                 "{}: {} {} of {} (weights, gradients and moments {}, one gathered group {}, "
                 "activations {})",
                 readable_bytes(need.of_rank() * ranks), ranks, ranks == 1 ? "rank" : "ranks",
                 readable_bytes(need.of_rank()), readable_bytes(need.state),
                 readable_bytes(need.whole_group), readable_bytes(need.activations)),
             remedy)
      .what();
}

// A run that does not fit is refused before anything is allocated, with keys that make it fit.
void check_memory(const TrainCommand& command, const RunConfig& config, Group& world) {
  const MemoryNeed need = memory_need(config);
  const int ranks = ranks_on_this_host(world);
  const int64_t available = available_memory();
  std::string error;
  if (need.of_rank() > available / ranks) {
    // The message of the lowest rank is the one that is shown; the search for keys takes a moment.
    error = world.rank() == 0 ? too_large(command, config, ranks, available)
                              : "this run does not fit in the memory of one of the machines";
  }
  fail_together(world, error);
}

// Rank 0 writes; all ranks learn when it can't.
void open_metrics(const RunConfig& config, Group& world, std::optional<MetricsFile>& metrics) {
  if (config.metrics_file.empty()) return;
  on_rank_0(world, [&] { metrics.emplace(config.metrics_file, config.run_name); });
}

int train_on_ranks(const TrainCommand& command, const RunConfig& config, Group& world) {
  check_memory(command, config, world);
  std::optional<MetricsFile> metrics;
  open_metrics(config, world, metrics);
  if (world.rank() == 0) {
    Printer printer(config, metrics);
    train(config, world, printer);
  } else {
    TrainObserver silent;
    train(config, world, silent);
  }
  return kExitDone;
}

}  // namespace

std::string step_line(const StepReport& report) {
  return fmt::format(
      "completed step: {}, seconds: {:.3f}, TFLOP/s/device: {:.3f}, Tokens/s/device: {:.3f}, "
      "total_weights: {:.0f}, loss: {:.3f}, perplexity: {:.3f}",
      report.step, report.seconds, report.teraflops_per_second, report.tokens_per_second,
      report.total_weights, report.loss, report.perplexity);
}

std::string start_block(const RunConfig& config, const StartReport& report) {
  const ModelConfig& model = config.model;
  const DataConfig& data = config.data;
  std::string text = describe_notes(config);
  if (!config.run_name.empty()) text += fmt::format("run: {}\n", config.run_name);
  const bool has_masks = mask_shares(model).size() > 1;
  text += fmt::format("model: {}, {} parameters (E {} F {} L {} V {} H {} K {} D {}), {}{}\n",
                      model.name, readable_count(report.parameters), model.embedding, model.mlp,
                      model.layers, model.vocabulary, model.query_heads, model.kv_heads,
                      model.head_size, name_of(model.data_type),
                      has_masks ? "; layers: " + describe_masks(model) : "");
  text += fmt::format("layout: {}\n", report.layout);
  text += fmt::format("data: {}\n", report.dataset);
  if (config.parallel.ring_size > 1) {
    text += fmt::format(
        "balance: first batch, busiest rank {:.2f} x the mean attention work, {:.2f} hop by hop\n",
        report.imbalance, report.step_imbalance);
  }
  text += fmt::format("step: {} x {} tokens", data.global_batch_rows, data.sequence_length);
  if (data.gradient_accumulation_steps != 1) {
    text += fmt::format(" x {} micro-batches", data.gradient_accumulation_steps);
  }
  text += fmt::format(", {:.4g} TFLOP a rank, {:.0f}% of it attention\n", report.teraflops_per_step,
                      100 * report.attention_share);
  text += fmt::format("machine: {} {}, {} OpenMP {} each, kernels: {}\n", report.ranks,
                      report.ranks == 1 ? "rank" : "ranks", report.threads_per_rank,
                      report.threads_per_rank == 1 ? "thread" : "threads", report.isa);
  text += fmt::format("memory: {} held; attention of {} layer sends {} a step and rank",
                      readable_bytes(report.bytes_held), has_masks ? "a mean" : "one",
                      readable_bytes(report.attention_bytes_per_layer));
  if (report.attention_bytes_saved_per_layer > 0) {
    text += fmt::format(", {} less than whole blocks",
                        readable_bytes(report.attention_bytes_saved_per_layer));
  }
  text += "\n";
  return text;
}

int run_train_command(const TrainCommand& command, const LaunchOptions& options) {
  const auto configure = [&](int64_t available_ranks) {
    isa_in_use();  // refuses a wrong ODYSSEY_MAX_ISA
    return make_run_config(command.yml, command.key_values, available_ranks);
  };
  return launch(options, configure, [&](const RunConfig& config, Group& world) {
    return train_on_ranks(command, config, world);
  });
}

}  // namespace odyssey
