// SPDX-License-Identifier: Apache-2.0
// RunConfig: everything a run was asked to do, checked. Built once, by make_run_config, from a yml
// and key=value words; immutable afterwards, so the code behind it has no checks of its own.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "odyssey/sequence/block_mask.h"
#include "odyssey/sequence/placement.h"

namespace odyssey {

enum class Strategy { kAllGather, kRing, kUlysses, kUsp };
std::string_view name_of(Strategy strategy);  // the word of context_parallel_strategy
enum class DataType { kFloat32, kBfloat16 };
enum class Activation { kSilu, kGelu };  // gelu: the tanh form, as gemma has it
enum class DatasetType { kSynthetic, kText };

// NVIDIA- and Hugging-Face-style "llama3" scaling of the RoPE frequencies (factor 1 = none). With
// an original length of 1 every frequency is divided by the factor: linear scaling.
struct RopeScaling {
  double factor = 1, low_frequency_factor = 1, high_frequency_factor = 4;
  int64_t original_length = 8192;
};

struct ModelConfig {
  std::string name;  // "default" where no preset is used
  int64_t embedding = 0, mlp = 0, layers = 0, vocabulary = 0;
  int64_t query_heads = 0, kv_heads = 0, head_size = 0;
  float norm_epsilon = 1e-5f;
  double rope_theta = 10000;
  double local_rope_theta = 0;  // of sliding layers, unscaled (gemma3); 0: as all others
  RopeScaling rope_scaling;
  Activation activation = Activation::kSilu;
  bool qkv_bias = false;         // qwen2.5
  bool qk_norm = false;          // qwen3
  bool tied_head = false;        // the embedding is the output head
  bool scale_embedding = false;  // gemma: embeddings times sqrt(E)
  bool norm_adds_one = false;    // gemma: normalised values times (1 + weight)
  // gemma2: what attention and MLP add to the residual stream is normalised.
  bool attention_output_norm = false, mlp_output_norm = false;
  float logit_soft_cap = 0;  // gemma2: of the output logits; 0: none
  DataType data_type = DataType::kBfloat16;
  float attention_soft_cap = 0;  // 0: none
  float attention_scale = 0;     // 0: 1/sqrt(D)
  // Layer l has masks[l mod their number]; one for all layers, or a pattern such as gemma2's.
  std::vector<MaskRule> masks = {MaskRule{}};
  bool attention_sink = false;  // a learned logit of each query head joins every softmax (gpt-oss)
};

// The different masks of the layers, each with its number of layers, in the order of their first
// layer.
std::vector<MaskShare> mask_shares(const ModelConfig& model);
// Which of mask_shares a layer has.
int64_t mask_index(const ModelConfig& model, int64_t layer);

// The rank layout. P = ring_size * ulysses_size.
struct ParallelConfig {
  Strategy strategy = Strategy::kAllGather;
  int data = 1, fsdp = 1;               // batch rows are split over data x fsdp
  int ring_size = 1, ulysses_size = 1;  // sizes of the axes context and context_usp_ulysses
  // How much of these sizes lies across nodes; what is left of each is inside a node.
  int ring_nodes = 1, ulysses_nodes = 1;
  bool outer_gather = false;  // outer exchange: gather instead of shifting
  PlacementKind placement = PlacementKind::kContiguous;
  int ranks() const { return data * fsdp * ring_size * ulysses_size; }
};

struct DataConfig {
  DatasetType type = DatasetType::kSynthetic;
  int64_t sequence_length = 0;              // S = max_target_length
  int64_t global_batch_rows = 0;            // rows of one micro-batch over all ranks
  int64_t gradient_accumulation_steps = 1;  // micro-batches of one step
  bool packing = true;
  int64_t max_segments_per_row = -1;
  uint64_t shuffle_seed = 0;
  bool shuffle = true;
  int64_t reuse_example_batch = 0;
  std::string text_path;                // file or folder
  std::string text_document_separator;  // a line of exactly this text ends a document; "" = none
};

struct OptimizerConfig {
  double learning_rate = 3e-5, final_fraction = 0.1, warmup_fraction = 0.1;
  int64_t schedule_steps = 0;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, epsilon_root = 0, weight_decay = 0.1;
  double clip_norm = 1.0;        // 0: no clipping
  double qk_clip_threshold = 0;  // largest attention score of a head; 0: no clipping
};

struct RunConfig {
  ModelConfig model;
  ParallelConfig parallel;
  DataConfig data;
  OptimizerConfig optimizer;
  int64_t steps = 0;
  uint64_t init_seed = 0;
  int64_t vocabulary_tiles = 1;  // num_vocab_tiling
  std::string run_name, base_output_directory, metrics_file;
  bool abort_on_nan_loss = true, abort_on_inf_loss = true;
  bool record_max_logits = false;
  double comm_timeout_seconds = 300;
  // Keys given that have no effect here (TPU kernel tuning and the like), for the one line that
  // says so.
  std::vector<std::string> keys_without_effect;
  // Sentences the user should read once, such as "ulysses keeps the placement contiguous".
  std::vector<std::string> notes;
  // Equal on all ranks of a run that agrees with itself.
  uint64_t hash = 0;

  bool records_max_logits() const { return record_max_logits || optimizer.qk_clip_threshold > 0; }
};

// Reads the yml (may be empty: defaults only), then the key=value words, and checks everything.
// `available_ranks`: ranks that run; 0: as many as the axes multiply to, where -1 counts as 1.
// Throws UserError that names key, value and remedy. Prints nothing: see notes.
RunConfig make_run_config(const std::string& yml_path, std::span<const std::string> key_values,
                          int64_t available_ranks);

// For `odyssey attention`: layout, mask, scale, cap and data type only. Shapes come with the
// tensors, so nothing about model, batch or data set is asked or refused, and those fields stay 0;
// the one layer has the one mask.
RunConfig make_attention_config(std::span<const std::string> key_values, int64_t available_ranks);

// Weights of the model.
int64_t parameter_count(const ModelConfig& model);

}  // namespace odyssey
