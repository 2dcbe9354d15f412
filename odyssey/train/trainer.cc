// SPDX-License-Identifier: Apache-2.0
#include "odyssey/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "odyssey/base/buffer.h"
#include "odyssey/base/parallel_for.h"
#include "odyssey/comm/all_reduce.h"
#include "odyssey/comm/barrier.h"
#include "odyssey/data/dataset.h"
#include "odyssey/kernels/isa.h"
#include "odyssey/model/decoder.h"
#include "odyssey/sequence/balance.h"
#include "odyssey/sequence/shard.h"
#include "odyssey/train/fault_drill.h"
#include "odyssey/train/flops.h"
#include "odyssey/train/learning_rate.h"
#include "odyssey/train/optimizer.h"
#include "odyssey/train/qk_clip.h"

namespace odyssey {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The rows of ring rank r, Ulysses rank u of whole rows [B, S].
LocalBatch cut(const Batch& batch, const Placement& placement, int r, int u) {
  const int64_t rows = placement.local_count(r, u), length = batch.sequence_length;
  std::vector<std::vector<Run>> runs;  // of each batch row
  for (const Placement& row : row_placements(placement, batch.rows, batch.segments)) {
    runs.push_back(row.local_rows(r, u));
  }
  const auto take = [&](const std::vector<int32_t>& whole) {
    std::vector<int32_t> part(batch.rows * rows);
    for (int64_t b = 0; b < batch.rows; ++b) {
      take_rows(runs[b], std::span(whole).subspan(b * length, length),
                std::span(part).subspan(b * rows, rows));
    }
    return part;
  };
  const std::vector<int32_t> weights = take(batch.target_weights);
  return {take(batch.tokens), take(batch.targets), take(batch.positions),
          std::vector<float>(weights.begin(), weights.end()), batch.segments};
}

std::string describe_layout(const ParallelConfig& p) {
  const char* names[] = {"all_gather", "ring", "ulysses", "usp"};
  std::string text = fmt::format("{}: ring {} x ulysses {}", names[static_cast<int>(p.strategy)],
                                 p.ring_size, p.ulysses_size);
  if (p.strategy == Strategy::kUsp && p.outer_gather) text += ", outer all_gather";
  if (p.ring_nodes != 1) text += fmt::format(", ring over {} nodes", p.ring_nodes);
  if (p.ulysses_nodes != 1) text += fmt::format(", ulysses over {} nodes", p.ulysses_nodes);
  return text + fmt::format(", {}; data {}, fsdp {}", name_of(p.placement), p.data, p.fsdp);
}

template <class T>
class Trainer {
 public:
  Trainer(const RunConfig& config, Group& world, TrainObserver& observer)
      : config_(config),
        world_(world),
        observer_(observer),
        mesh_(world, config.parallel.data, config.parallel.fsdp, config.parallel.ring_size,
              config.parallel.ulysses_size,
              {config.parallel.ring_nodes, config.parallel.ulysses_nodes}),
        dataset_(make_dataset(config.data, config.model.vocabulary)),
        decoder_(config, mesh_),
        optimizer_(config.optimizer, static_cast<int64_t>(decoder_.parameters().weights().size()),
                   mesh_.shard(), decoder_.parameters().ranges_of(kSinks)) {}

  void run() {
    first_batch_ = read_batch();
    barrier(world_);
    const StartReport start = start_report();
    if (world_.rank() == 0) observer_.started(start);
    FinishReport finish;
    std::vector<double> seconds;
    const Clock::time_point begin = Clock::now();
    for (int64_t step = 0; step < config_.steps; ++step) {
      const StepReport report = train_step(step);
      if (world_.rank() == 0) observer_.stepped(report);
      check_loss(report);
      seconds.push_back(report.seconds);
      if (step == 0) finish.first_loss = report.loss;
      finish.last_loss = report.loss;
    }
    finish.steps = config_.steps;
    finish.total_seconds = seconds_since(begin);
    finish.median_step_seconds = median(seconds);
    finish.bytes_peak = buffer_bytes_peak();
    barrier(world_);
    if (world_.rank() == 0) observer_.finished(finish);
  }

 private:
  // Collective.
  StartReport start_report() {
    const StepTeraflops flops = step_teraflops(config_);
    StartReport report;
    report.parameters = decoder_.parameters().total();
    report.ranks = world_.size();
    report.layout = describe_layout(config_.parallel);
    report.dataset = dataset_->describe();
    report.isa = name_of(isa_in_use());
    report.threads_per_rank = thread_count();
    report.teraflops_per_step = flops.total();
    report.attention_share = flops.total() > 0 ? flops.attention / flops.total() : 0;
    report.bytes_held = buffer_bytes_alive();
    const AttentionLayout& layout = decoder_.layout();
    const std::vector<MaskShare> masks = mask_shares(config_.model);
    const LayeredWork work = count_layered_work(
        row_placements(layout.placement, first_batch_->rows, first_batch_->segments),
        first_batch_->segments, masks);
    report.imbalance = work.imbalance();
    report.step_imbalance = work.step_imbalance();
    double bytes[2] = {0, 0};  // of all layers
    const AttentionLayout here = of_batch(layout, first_batch_->segments);
    for (const MaskShare& share : masks) {
      const SentBytes mine =
          sent_bytes(with_mask(here, share.mask), mesh_.ring_index(), mesh_.ulysses_index());
      bytes[0] += static_cast<double>(mine.needed * share.layers);
      bytes[1] += static_cast<double>(mine.saved() * share.layers);
    }
    all_reduce_sum(world_, bytes);
    const auto calls = static_cast<double>(world_.size() * config_.model.layers);
    report.attention_bytes_per_layer = static_cast<int64_t>(bytes[0] / calls);
    report.attention_bytes_saved_per_layer = static_cast<int64_t>(bytes[1] / calls);
    return report;
  }

  // The whole rows of this rank's batch slice; the first ones were read for the start report.
  Batch read_batch() {
    if (first_batch_) return *std::exchange(first_batch_, std::nullopt);
    const int64_t rows = batch_rows_of_slice(config_);
    return dataset_->next(mesh_.batch_index() * rows, rows);
  }

  double seconds_waiting() {
    return mesh_.ring().traffic().seconds_waiting + mesh_.ulysses().traffic().seconds_waiting;
  }

  StepReport train_step(int64_t step) {
    const Clock::time_point begin = Clock::now();
    ShardedParameters<T>& parameters = decoder_.parameters();
    parameters.start_gradients();
    decoder_.forget_max_logits();
    double sums[3] = {0, 0, -seconds_waiting()};  // loss, weight, waiting
    for (int64_t micro = 0; micro < config_.data.gradient_accumulation_steps; ++micro) {
      const LocalBatch batch =
          cut(read_batch(), decoder_.layout().placement, mesh_.ring_index(), mesh_.ulysses_index());
      fault_drill(world_.rank(), step);
      const LossSum sum = decoder_.forward_backward(batch);
      sums[0] += sum.loss;
      sums[1] += sum.weight;
    }
    sums[2] += seconds_waiting();
    all_reduce_sum(world_, sums);
    parameters.reduce_over_data();

    StepReport report;
    report.step = step;
    report.learning_rate = learning_rate_of(config_.optimizer, step);
    report.total_weights = sums[1];
    const std::span<float> max_logits = decoder_.max_logits();
    if (config_.records_max_logits()) {
      all_reduce_max(world_, max_logits);
      report.max_logit = double{*std::max_element(max_logits.begin(), max_logits.end())};
    }
    report.seconds_waiting = sums[2] / world_.size();
    // A batch without any target: nothing to divide by, nothing to learn.
    if (sums[1] > 0) {
      report.loss = sums[0] / sums[1];
      const Optimizer::Norms norms = optimizer_.step(report.learning_rate, sums[1],
                                                     parameters.gradients(), parameters.weights());
      report.raw_grad_norm = norms.raw_gradient;
      report.grad_norm = norms.gradient;
      report.parameter_norm = norms.parameters;
      if (config_.optimizer.qk_clip_threshold > 0) {
        report.qk_clipped_heads = clip_query_key(config_.model, max_logits,
                                                 config_.optimizer.qk_clip_threshold, parameters);
      }
    }
    report.perplexity = std::exp(report.loss);
    report.seconds = seconds_since(begin);
    report.tokens = step_tokens(config_);
    report.tokens_per_second = report.tokens / report.seconds;
    report.teraflops_per_second = step_teraflops(config_).total() / report.seconds;
    return report;
  }

  // The loss is the same number on all ranks, so all of them stop here together.
  void check_loss(const StepReport& report) const {
    const bool nan = std::isnan(report.loss) && config_.abort_on_nan_loss;
    const bool inf = std::isinf(report.loss) && config_.abort_on_inf_loss;
    if (nan || inf) {
      throw RunError(fmt::format(
          "the loss of step {} is {}; lower learning_rate, or set abort_on_{}_loss=False to go on",
          report.step, nan ? "NaN" : "infinite", nan ? "nan" : "inf"));
    }
  }

  static double median(std::vector<double> seconds) {
    if (seconds.empty()) return 0;
    // The first step also warms caches and scratch memory.
    if (seconds.size() > 1) seconds.erase(seconds.begin());
    std::sort(seconds.begin(), seconds.end());
    const size_t middle = seconds.size() / 2;
    return seconds.size() % 2 == 1 ? seconds[middle] : (seconds[middle - 1] + seconds[middle]) / 2;
  }

  const RunConfig& config_;
  Group& world_;
  TrainObserver& observer_;
  Mesh mesh_;
  std::unique_ptr<Dataset> dataset_;
  Decoder<T> decoder_;
  Optimizer optimizer_;
  std::optional<Batch> first_batch_;
};

}  // namespace

void train(const RunConfig& config, Group& world, TrainObserver& observer) {
  if (config.model.data_type == DataType::kBfloat16) {
    Trainer<bf16>(config, world, observer).run();
  } else {
    Trainer<float>(config, world, observer).run();
  }
}

}  // namespace odyssey
