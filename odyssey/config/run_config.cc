// SPDX-License-Identifier: Apache-2.0
#include "odyssey/config/run_config.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "odyssey/base/error.h"
#include "odyssey/config/resolve.h"
#include "odyssey/config/settings.h"

namespace odyssey {
namespace {

// ranks * per_device_batch_size, which must be whole and shared evenly by data x fsdp.
int64_t resolve_rows(const Settings& settings, const ParallelConfig& parallel) {
  const int64_t ranks = parallel.ranks();
  const int64_t groups = int64_t{parallel.data} * parallel.fsdp;
  const double size = settings.real("per_device_batch_size");
  const double product = static_cast<double>(ranks) * size;
  constexpr double kMostRows = 1e12;
  if (product > kMostRows) {
    throw user_error(settings.label("per_device_batch_size"),
                     fmt::format("at most {:.0f} rows", kMostRows),
                     fmt::format("{} x {} ranks", size, ranks), "Give a smaller number.");
  }
  const int64_t rows = std::llround(product);
  // Decimal fractions such as 0.3333333 for 1/3 come near a whole number only.
  constexpr double kTolerance = 1e-6;
  const bool is_whole = rows >= 1 && std::fabs(product - static_cast<double>(rows)) < kTolerance;
  if (is_whole && rows % groups == 0) return rows;
  const int64_t near = std::max<int64_t>(1, std::llround(product / static_cast<double>(groups)));
  const int64_t working = near * groups;
  const std::string wanted = groups == 1 ? "a whole number of rows"
                                         : fmt::format(
                                               "a multiple of {} rows (ici_data_parallelism={} x "
                                               "ici_fsdp_parallelism={})",
                                               groups, parallel.data, parallel.fsdp);
  throw user_error(settings.label("per_device_batch_size"), wanted,
                   fmt::format("{} x {} ranks = {} rows", size, ranks, product),
                   fmt::format("Give per_device_batch_size={} for {} {}.",
                               static_cast<double>(working) / static_cast<double>(ranks), working,
                               working == 1 ? "row" : "rows"));
}

void check_text_data(const Settings& settings, const DataConfig& data) {
  if (data.text_path.empty()) {
    throw user_error(settings.label("text_path"), "a file or folder with dataset_type=text",
                     "nothing", "Give text_path=FILE, or dataset_type=synthetic.");
  }
  constexpr int64_t kBytes = 256;  // tokens are bytes
  if (settings.integer("vocab_size") < kBytes) {
    throw user_error(settings.label("vocab_size"), "at least 256 with dataset_type=text",
                     fmt::format("{}", settings.integer("vocab_size")),
                     "Tokens of text are bytes: give vocab_size=256.");
  }
}

DataConfig resolve_data(const Settings& settings, const ParallelConfig& parallel) {
  DataConfig data;
  data.type =
      settings.text("dataset_type") == "text" ? DatasetType::kText : DatasetType::kSynthetic;
  data.sequence_length = settings.integer("max_target_length");
  data.global_batch_rows = resolve_rows(settings, parallel);
  data.gradient_accumulation_steps = settings.integer("gradient_accumulation_steps");
  data.packing = settings.flag("packing");
  data.max_segments_per_row = settings.integer("max_segments_per_seq");
  data.shuffle_seed = static_cast<uint64_t>(settings.integer("data_shuffle_seed"));
  data.shuffle = settings.flag("enable_data_shuffling");
  data.reuse_example_batch = settings.integer("reuse_example_batch");
  data.text_path = settings.text("text_path");
  data.text_document_separator = settings.text("text_document_separator");
  if (data.type == DatasetType::kText) check_text_data(settings, data);
  return data;
}

// steps and learning_rate_schedule_steps: -1 stands for the other of the two.
void resolve_steps(const Settings& settings, RunConfig& config) {
  const int64_t steps = settings.integer("steps");
  const int64_t schedule = settings.integer("learning_rate_schedule_steps");
  if (steps == -1 && schedule == -1) {
    throw user_error(settings.label("steps"), "a number where learning_rate_schedule_steps=-1",
                     "-1", "Give one of the two.");
  }
  config.steps = steps == -1 ? schedule : steps;
  config.optimizer.schedule_steps = schedule == -1 ? steps : schedule;
}

// 0 where heads are not clipped.
double resolve_qk_clip(const Settings& settings, const ModelConfig& model,
                       std::vector<std::string>& notes) {
  const double threshold = settings.real("qk_clip_threshold");
  if (!settings.flag("use_qk_clip")) {
    if (settings.at("qk_clip_threshold").source == Source::kCommandLine) {
      notes.push_back(
          fmt::format("qk_clip_threshold={} changes nothing with use_qk_clip=false", threshold));
    }
    return 0;
  }
  if (model.qk_norm) {
    throw user_error(settings.label("use_qk_clip"), "false with use_qk_norm=true", "true",
                     "The norm of queries and keys undoes any factor of their weights, and bounds "
                     "the scores itself.");
  }
  if (model.attention_soft_cap != 0) {
    throw user_error(settings.label("use_qk_clip"), "false with attn_logits_soft_cap", "true",
                     "The cap bounds the scores already: give one of the two.");
  }
  return threshold;
}

OptimizerConfig resolve_optimizer(const Settings& settings) {
  OptimizerConfig optimizer;
  optimizer.learning_rate = settings.real("learning_rate");
  optimizer.final_fraction = settings.real("learning_rate_final_fraction");
  optimizer.warmup_fraction = settings.real("warmup_steps_fraction");
  optimizer.beta1 = settings.real("adam_b1");
  optimizer.beta2 = settings.real("adam_b2");
  optimizer.epsilon = settings.real("adam_eps");
  optimizer.epsilon_root = settings.real("adam_eps_root");
  optimizer.weight_decay = settings.real("adam_weight_decay");
  optimizer.clip_norm = settings.real("gradient_clipping_threshold");
  return optimizer;
}

// FNV-1a, 64 bits.
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3U;
  }
  return hash;
}

// What training and the attention call have in common, once the model is known.
void resolve_common(const Settings& settings, const RowShape& row, int64_t available_ranks,
                    RunConfig& config) {
  config.parallel = resolve_parallel(settings, config.model, row, available_ranks, config.notes);
  config.comm_timeout_seconds = settings.real("comm_timeout_seconds");
  config.keys_without_effect = settings.without_effect();
  config.hash = hash_of(fmt::format(
      "{}data={}\nfsdp={}\nring={}\nulysses={}\n", settings.canonical_text(), config.parallel.data,
      config.parallel.fsdp, config.parallel.ring_size, config.parallel.ulysses_size));
}

// Keys of a model's layers in the command line of one attention call, whose layer is its own.
void refuse_keys_of_layers(const Settings& settings) {
  if (settings.text("attention_pattern") != "[]") {
    throw user_error(settings.label("attention_pattern"), "[] for one attention call",
                     settings.text("attention_pattern"),
                     "Give attention_type, the mask of the call.");
  }
  if (settings.flag("attention_sink")) {
    throw user_error(settings.label("attention_sink"), "false for one attention call", "true",
                     "Sinks of a call come with the input: the tensor sinks [H].");
  }
}

}  // namespace

RunConfig resolve_run(const Settings& settings, int64_t available_ranks) {
  const bool is_text = settings.text("dataset_type") == "text";
  const RowShape row = {
      settings.integer("max_target_length"),
      settings.flag("packing") && (is_text || settings.integer("max_segments_per_seq") >= 2)};
  RunConfig config;
  resolve_attention(settings, config.model, config.notes);
  resolve_model(settings, config.model);
  resolve_common(settings, row, available_ranks, config);
  config.data = resolve_data(settings, config.parallel);
  config.optimizer = resolve_optimizer(settings);
  config.optimizer.qk_clip_threshold = resolve_qk_clip(settings, config.model, config.notes);
  resolve_steps(settings, config);
  config.init_seed = static_cast<uint64_t>(settings.integer("init_weights_seed"));
  config.vocabulary_tiles = settings.integer("num_vocab_tiling");
  config.run_name = settings.text("run_name");
  config.base_output_directory = settings.text("base_output_directory");
  config.metrics_file = settings.text("metrics_file");
  config.abort_on_nan_loss = settings.flag("abort_on_nan_loss");
  config.abort_on_inf_loss = settings.flag("abort_on_inf_loss");
  config.record_max_logits = settings.flag("record_max_logits");
  return config;
}

RunConfig make_run_config(const std::string& yml_path, std::span<const std::string> key_values,
                          int64_t available_ranks) {
  return resolve_run(make_settings(yml_path, key_values, true), available_ranks);
}

RunConfig make_attention_config(std::span<const std::string> key_values, int64_t available_ranks) {
  const Settings settings = make_settings("", key_values, false);
  refuse_keys_of_layers(settings);
  RunConfig config;
  resolve_attention(settings, config.model, config.notes);
  config.model.layers = 1;
  resolve_common(settings, {}, available_ranks, config);
  return config;
}

}  // namespace odyssey
