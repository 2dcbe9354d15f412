// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include "odyssey/base/error.h"
#include "odyssey/config/resolve.h"

namespace odyssey {
namespace {

int64_t required_window(const Settings& settings, const char* key) {
  const int64_t window = settings.integer(key);
  if (window < 1) {
    throw user_error(
        settings.label(key),
        fmt::format("at least 1 with attention_type={}", settings.text("attention_type")),
        fmt::format("{}", window), fmt::format("Give {} a size in tokens.", key));
  }
  return window;
}

// A size that no mask uses is not dropped in silence.
void note_unused_window(const Settings& settings, const char* key, MaskKind mask, MaskKind user,
                        std::vector<std::string>& notes) {
  if (mask == user || settings.integer(key) == 0) return;
  notes.push_back(fmt::format("{}={} changes nothing with attention_type={}", key,
                              settings.integer(key), settings.text("attention_type")));
}

void resolve_mask(const Settings& settings, ModelConfig& model, std::vector<std::string>& notes) {
  const std::string& word = settings.text("attention_type");
  if (word == "local_sliding") {
    model.mask = MaskKind::kLocalSliding;
    model.window = required_window(settings, "sliding_window_size");
  } else if (word == "chunk") {
    model.mask = MaskKind::kChunk;
    model.window = required_window(settings, "chunk_attn_window_size");
  } else {
    model.mask = word == "full" ? MaskKind::kFull : MaskKind::kCausal;
  }
  note_unused_window(settings, "sliding_window_size", model.mask, MaskKind::kLocalSliding, notes);
  note_unused_window(settings, "chunk_attn_window_size", model.mask, MaskKind::kChunk, notes);
}

RopeScaling resolve_rope_scaling(const Settings& settings) {
  RopeScaling scaling;
  scaling.low_frequency_factor = settings.real("rope_low_frequency_factor");
  scaling.high_frequency_factor = settings.real("rope_high_frequency_factor");
  scaling.original_length = settings.integer("rope_original_length");
  const bool is_scaled =
      settings.text("rope_type") == "llama3.1" && settings.flag("rope_use_scale");
  if (!is_scaled) return scaling;
  scaling.factor = settings.real("rope_scaling_factor");
  if (scaling.low_frequency_factor >= scaling.high_frequency_factor) {
    throw user_error(
        settings.label("rope_high_frequency_factor"),
        fmt::format("more than rope_low_frequency_factor={}", scaling.low_frequency_factor),
        fmt::format("{}", scaling.high_frequency_factor), "Llama uses 1 and 4.");
  }
  return scaling;
}

}  // namespace

void resolve_attention(const Settings& settings, ModelConfig& model,
                       std::vector<std::string>& notes) {
  model.data_type = settings.text("dtype") == "float32" ? DataType::kFloat32 : DataType::kBfloat16;
  model.attention_soft_cap =
      static_cast<float>(settings.optional_real("attn_logits_soft_cap").value_or(0));
  model.attention_scale = static_cast<float>(settings.optional_real("attention_scale").value_or(0));
  resolve_mask(settings, model, notes);
}

void resolve_model(const Settings& settings, ModelConfig& model) {
  model.name = settings.text("model_name");
  model.embedding = settings.integer("base_emb_dim");
  model.mlp = settings.integer("base_mlp_dim");
  model.layers = settings.integer("base_num_decoder_layers");
  model.vocabulary = settings.integer("vocab_size");
  model.query_heads = settings.integer("base_num_query_heads");
  model.kv_heads = settings.integer("base_num_kv_heads");
  model.head_size = settings.integer("head_dim");
  if (model.query_heads % model.kv_heads != 0) {
    throw user_error(settings.label("base_num_kv_heads"),
                     fmt::format("a divisor of base_num_query_heads={}", model.query_heads),
                     fmt::format("{}", model.kv_heads),
                     "Every key/value head serves the same number of query heads.");
  }
  if (model.head_size % 2 != 0) {
    throw user_error(settings.label("head_dim"), "an even number",
                     fmt::format("{}", model.head_size), "RoPE turns pairs of numbers.");
  }
  model.norm_epsilon = static_cast<float>(settings.real("normalization_layer_epsilon"));
  model.rope_theta = settings.real("rope_max_timescale");
  model.rope_scaling = resolve_rope_scaling(settings);
  model.activation =
      settings.text("mlp_activations") == "[gelu,linear]" ? Activation::kGelu : Activation::kSilu;
  model.qkv_bias = settings.flag("attention_bias");
  model.qk_norm = settings.flag("use_qk_norm");
  model.tied_head = settings.flag("logits_via_embedding");
  model.scale_embedding = settings.flag("scale_embedding");
  model.norm_adds_one = settings.flag("norm_adds_one");
}

int64_t parameter_count(const ModelConfig& model) {
  const int64_t queries = model.query_heads * model.head_size;
  const int64_t keys = model.kv_heads * model.head_size;
  int64_t layer = model.embedding * (queries + 2 * keys)  // query, key, value
                  + queries * model.embedding             // output
                  + 3 * model.embedding * model.mlp       // gate, value, down
                  + 2 * model.embedding;                  // two norms
  if (model.qkv_bias) layer += queries + 2 * keys;
  if (model.qk_norm) layer += 2 * model.head_size;
  const int64_t heads = model.tied_head ? 1 : 2;
  return model.layers * layer + heads * model.vocabulary * model.embedding + model.embedding;
}

}  // namespace odyssey
