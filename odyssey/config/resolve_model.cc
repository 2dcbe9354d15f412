// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>

#include <fmt/core.h>

#include "odyssey/base/error.h"
#include "odyssey/config/resolve.h"

namespace odyssey {
namespace {

int64_t required_window(const Settings& settings, const char* key, const std::string& asked) {
  const int64_t window = settings.integer(key);
  if (window < 1) {
    throw user_error(settings.label(key), fmt::format("at least 1 with {}", asked),
                     fmt::format("{}", window), fmt::format("Give {} a size in tokens.", key));
  }
  return window;
}

// asked: "attention_type=chunk", or the pattern that the word stands in.
MaskRule mask_of_word(const Settings& settings, std::string_view word, const std::string& asked) {
  if (word == "local_sliding") {
    return {MaskKind::kLocalSliding, required_window(settings, "sliding_window_size", asked)};
  }
  if (word == "chunk") {
    return {MaskKind::kChunk, required_window(settings, "chunk_attn_window_size", asked)};
  }
  return {word == "full" ? MaskKind::kFull : MaskKind::kCausal, 0};
}

// A size that no mask uses is not dropped in silence.
void note_unused_window(const Settings& settings, const char* key, MaskKind user,
                        const ModelConfig& model, const std::string& asked,
                        std::vector<std::string>& notes) {
  if (settings.integer(key) == 0) return;
  for (const MaskRule& mask : model.masks) {
    if (mask.kind == user) return;
  }
  notes.push_back(fmt::format("{}={} changes nothing with {}", key, settings.integer(key), asked));
}

// The words of "[local_sliding,global]"; none of "[]".
std::vector<std::string_view> words_of(std::string_view list) {
  std::vector<std::string_view> words;
  list = list.substr(1, list.size() - 2);
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    words.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return words;
}

void check_pattern(const Settings& settings, const std::vector<std::string_view>& words) {
  const char* key = "attention_pattern";
  const std::string& list = settings.text(key);
  for (const std::string_view word : words) {
    const bool known =
        word == "global" || word == "local_sliding" || word == "chunk" || word == "full";
    if (known) continue;
    throw user_error(settings.label(key), "a list of global, local_sliding, chunk or full", list,
                     "Give the mask of each layer, such as [local_sliding,global]; the list is "
                     "repeated over the layers.");
  }
  const int64_t layers = settings.integer("base_num_decoder_layers");
  if (static_cast<int64_t>(words.size()) > layers) {
    throw user_error(settings.label(key),
                     fmt::format("at most base_num_decoder_layers={} masks", layers), list,
                     "Give no masks that no layer has, or more layers.");
  }
  if (settings.text("attention_type") != "global") {
    throw user_error(settings.label("attention_type"),
                     fmt::format("global with attention_pattern={}", list),
                     settings.text("attention_type"),
                     "The pattern says the mask of every layer: give one of the two.");
  }
}

void resolve_masks(const Settings& settings, ModelConfig& model, std::vector<std::string>& notes) {
  const std::string& list = settings.text("attention_pattern");
  std::vector<std::string_view> words = words_of(list);
  std::string asked = fmt::format("attention_pattern={}", list);
  if (words.empty()) {
    words = {settings.text("attention_type")};
    asked = fmt::format("attention_type={}", words[0]);
  } else {
    check_pattern(settings, words);
  }
  model.masks.clear();
  for (const std::string_view word : words) {
    model.masks.push_back(mask_of_word(settings, word, asked));
  }
  note_unused_window(settings, "sliding_window_size", MaskKind::kLocalSliding, model, asked, notes);
  note_unused_window(settings, "chunk_attn_window_size", MaskKind::kChunk, model, asked, notes);
}

// 0 where sliding layers have the theta of all.
double resolve_local_theta(const Settings& settings, const ModelConfig& model) {
  const double theta = settings.real("local_rope_max_timescale");
  if (theta == -1) return 0;
  const bool has_sliding = std::ranges::any_of(
      model.masks, [](const MaskRule& mask) { return mask.kind == MaskKind::kLocalSliding; });
  if (!has_sliding) {
    throw user_error(settings.label("local_rope_max_timescale"), "-1 without local_sliding layers",
                     fmt::format("{}", theta), "Leave it out, or give the layers windows.");
  }
  return theta;
}

RopeScaling resolve_rope_scaling(const Settings& settings) {
  RopeScaling scaling;
  scaling.low_frequency_factor = settings.real("rope_low_frequency_factor");
  scaling.high_frequency_factor = settings.real("rope_high_frequency_factor");
  scaling.original_length = settings.integer("rope_original_length");
  const double linear = settings.real("rope_linear_scaling_factor");
  if (linear != 1 && settings.text("rope_type") != "default") {
    throw user_error(settings.label("rope_linear_scaling_factor"), "1 with rope_type=llama3.1",
                     fmt::format("{}", linear), "Give one of the two scalings.");
  }
  if (linear != 1) return {linear, 1, 4, 1};
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
  resolve_masks(settings, model, notes);
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
  model.local_rope_theta = resolve_local_theta(settings, model);
  model.rope_scaling = resolve_rope_scaling(settings);
  model.activation =
      settings.text("mlp_activations") == "[gelu,linear]" ? Activation::kGelu : Activation::kSilu;
  model.qkv_bias = settings.flag("attention_bias");
  model.qk_norm = settings.flag("use_qk_norm");
  model.tied_head = settings.flag("logits_via_embedding");
  model.scale_embedding = settings.flag("scale_embedding");
  model.norm_adds_one = settings.flag("norm_adds_one");
  model.attention_sink = settings.flag("attention_sink");
  model.attention_output_norm = settings.flag("use_post_attn_norm");
  model.mlp_output_norm = settings.flag("use_post_ffw_norm");
  model.logit_soft_cap =
      static_cast<float>(settings.optional_real("final_logits_soft_cap").value_or(0));
}

std::vector<MaskShare> mask_shares(const ModelConfig& model) {
  std::vector<MaskShare> shares;
  const auto count = static_cast<int64_t>(model.masks.size());
  for (int64_t i = 0; i < std::min(count, model.layers); ++i) {
    // Layers i, i + count, ...
    const int64_t layers = (model.layers - i + count - 1) / count;
    const auto same = std::ranges::find(shares, model.masks[i], &MaskShare::mask);
    if (same != shares.end()) {
      same->layers += layers;
    } else {
      shares.push_back({model.masks[i], layers});
    }
  }
  return shares;
}

int64_t mask_index(const ModelConfig& model, int64_t layer) {
  const std::vector<MaskShare> shares = mask_shares(model);
  const MaskRule& mask = model.masks[layer % static_cast<int64_t>(model.masks.size())];
  return std::ranges::find(shares, mask, &MaskShare::mask) - shares.begin();
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
  if (model.attention_sink) layer += model.query_heads;
  if (model.attention_output_norm) layer += model.embedding;
  if (model.mlp_output_norm) layer += model.embedding;
  const int64_t heads = model.tied_head ? 1 : 2;
  return model.layers * layer + heads * model.vocabulary * model.embedding + model.embedding;
}

}  // namespace odyssey
