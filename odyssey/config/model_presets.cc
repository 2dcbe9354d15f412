// SPDX-License-Identifier: Apache-2.0
#include "odyssey/config/model_presets.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmt/core.h>

#include "odyssey/base/error.h"
#include "odyssey/config/spelling.h"

namespace odyssey {
namespace {

enum Family {
  kLlama2,
  kMistral,
  kLlama3,
  kLlama31,
  kLlama32,
  kQwen25,
  kQwen3,
  kGemma,
  kGemma2,
  kGemma3
};

struct Shape {
  const char* name;
  Family family;
  int64_t embedding, query_heads, kv_heads, head_size, mlp, layers, vocabulary;
  bool tied;
};

// name, family, E, H, K, D, F, L, V, tied head
constexpr Shape kShapes[] = {
    {"llama2-7b", kLlama2, 4096, 32, 32, 128, 11008, 32, 32000, false},
    {"llama2-13b", kLlama2, 5120, 40, 40, 128, 13824, 40, 32000, false},
    {"llama2-70b", kLlama2, 8192, 64, 8, 128, 28672, 80, 32000, false},
    {"mistral-7b", kMistral, 4096, 32, 8, 128, 14336, 32, 32000, false},
    {"llama3-8b", kLlama3, 4096, 32, 8, 128, 14336, 32, 128256, false},
    {"llama3-70b", kLlama3, 8192, 64, 8, 128, 28672, 80, 128256, false},
    {"llama3-405b", kLlama3, 16384, 128, 8, 128, 53248, 126, 128256, false},
    {"llama3.1-8b", kLlama31, 4096, 32, 8, 128, 14336, 32, 128256, false},
    {"llama3.1-70b", kLlama31, 8192, 64, 8, 128, 28672, 80, 128256, false},
    {"llama3.1-405b", kLlama31, 16384, 128, 8, 128, 53248, 126, 128256, false},
    {"llama3.2-1b", kLlama32, 2048, 32, 8, 64, 8192, 16, 128256, true},
    {"llama3.2-3b", kLlama32, 3072, 24, 8, 128, 8192, 28, 128256, true},
    {"llama3.3-70b", kLlama31, 8192, 64, 8, 128, 28672, 80, 128256, false},
    {"qwen2.5-1.5b", kQwen25, 1536, 12, 2, 128, 8960, 28, 151936, true},
    {"qwen2.5-7b", kQwen25, 3584, 28, 4, 128, 18944, 28, 152064, false},
    {"qwen2.5-14b", kQwen25, 5120, 40, 8, 128, 13824, 48, 152064, false},
    {"qwen3-0.6b", kQwen3, 1024, 16, 8, 128, 3072, 28, 151936, true},
    {"qwen3-1.7b", kQwen3, 2048, 16, 8, 128, 6144, 28, 151936, true},
    {"qwen3-4b", kQwen3, 2560, 32, 8, 128, 9728, 36, 151936, true},
    {"qwen3-8b", kQwen3, 4096, 32, 8, 128, 12288, 36, 151936, false},
    {"qwen3-14b", kQwen3, 5120, 40, 8, 128, 17408, 40, 151936, false},
    {"qwen3-32b", kQwen3, 5120, 64, 8, 128, 25600, 64, 151936, false},
    {"gemma-2b", kGemma, 2048, 8, 1, 256, 16384, 18, 256128, true},
    {"gemma-7b", kGemma, 3072, 16, 16, 256, 24576, 28, 256128, true},
    // MaxText counts the layers of gemma2 in pairs.
    {"gemma2-2b", kGemma2, 2304, 8, 4, 256, 9216, 26, 256128, true},
    {"gemma2-9b", kGemma2, 3584, 16, 8, 256, 14336, 42, 256128, true},
    {"gemma2-27b", kGemma2, 4608, 32, 16, 128, 36864, 46, 256128, true},
    {"gemma3-4b", kGemma3, 2560, 8, 4, 256, 10240, 34, 262144, true},
    {"gemma3-12b", kGemma3, 3840, 16, 8, 256, 15360, 48, 262144, true},
    {"gemma3-27b", kGemma3, 5376, 32, 16, 128, 21504, 62, 262144, true},
};

struct Refused {
  const char* name;
  const char* reason;
};

constexpr const char* kExperts = "it has experts";
constexpr const char* kGemma4 = "its global layers have other heads than its window layers";
constexpr const char* kGptOss =
    "it has experts, a bias on the attention output and yarn scaling of RoPE";
constexpr const char* kOlmo3 =
    "its norms stand behind attention and MLP only, and it has yarn scaling of RoPE";
constexpr const char* kLlama4 = "it has experts and layers without RoPE";
constexpr const char* kDeepseek = "it has experts and latent attention";
constexpr const char* kHybrid = "it has experts and layers of linear attention";
constexpr const char* kGpt3 = "it has learned positions and biases";

// Known to MaxText, not built here.
constexpr Refused kRefused[] = {
    {"mixtral-8x7b", kExperts},
    {"mixtral-8x22b", kExperts},
    {"qwen3-30b-a3b", kExperts},
    {"qwen3-235b-a22b", kExperts},
    {"qwen3-coder-480b-a35b", kExperts},
    {"qwen3-next-80b-a3b", kHybrid},
    {"gemma4-31b", kGemma4},
    {"gpt-oss-20b", kGptOss},
    {"gpt-oss-120b", kGptOss},
    {"olmo3-7b", kOlmo3},
    {"olmo3-32b", kOlmo3},
    {"llama4-17b-16e", kLlama4},
    {"llama4-17b-128e", kLlama4},
    {"deepseek2-16b", kDeepseek},
    {"deepseek2-236b", kDeepseek},
    {"deepseek3-671b", kDeepseek},
    {"gpt3-175b", kGpt3},
    {"gpt3-52k", kGpt3},
};

const char* theta_of(Family family) {
  switch (family) {
    case kLlama2:
    case kGemma:
    case kGemma2:
      return "10000";
    case kMistral:
    case kQwen25:
    case kQwen3:
    case kGemma3:
      return "1000000";
    case kLlama3:
    case kLlama31:
    case kLlama32:
      return "500000";
  }
  return "";
}

// What the later gemmas have beside gemma: windows in most layers, norms behind attention and MLP.
void add_gemma(const Shape& shape, std::vector<PresetEntry>& entries) {
  const bool third = shape.family == kGemma3;
  entries.push_back({"use_post_attn_norm", "true"});
  entries.push_back({"use_post_ffw_norm", "true"});
  entries.push_back({"sliding_window_size", third ? "1024" : "4096"});
  entries.push_back(
      {"attention_pattern", third ? "[local_sliding,local_sliding,local_sliding,local_sliding,"
                                    "local_sliding,global]"
                                  : "[local_sliding,global]"});
  if (third) {
    entries.push_back({"local_rope_max_timescale", "10000"});
    entries.push_back({"rope_linear_scaling_factor", "8"});
  } else {
    entries.push_back({"attn_logits_soft_cap", "50"});
    entries.push_back({"final_logits_soft_cap", "30"});
  }
  // Those of 27b scale scores by the embedding of a head, 1/sqrt(E / H), not by its size.
  const bool by_width = shape.head_size == 128;
  entries.push_back({"attention_scale",
                     by_width
                         ? fmt::format("{}", 1 / std::sqrt(static_cast<double>(shape.embedding) /
                                                           static_cast<double>(shape.query_heads)))
                         : "None"});
}

std::vector<PresetEntry> entries_of(const Shape& shape) {
  const Family family = shape.family;
  const bool is_scaled = family == kLlama31 || family == kLlama32;
  const bool is_gemma = family == kGemma || family == kGemma2 || family == kGemma3;
  const bool has_small_epsilon = family == kQwen25 || family == kQwen3 || is_gemma;
  const auto yes = [](bool value) { return std::string(value ? "true" : "false"); };
  std::vector<PresetEntry> entries = {
      {"base_emb_dim", fmt::format("{}", shape.embedding)},
      {"base_num_query_heads", fmt::format("{}", shape.query_heads)},
      {"base_num_kv_heads", fmt::format("{}", shape.kv_heads)},
      {"head_dim", fmt::format("{}", shape.head_size)},
      {"base_mlp_dim", fmt::format("{}", shape.mlp)},
      {"base_num_decoder_layers", fmt::format("{}", shape.layers)},
      {"vocab_size", fmt::format("{}", shape.vocabulary)},
      {"mlp_activations", is_gemma ? "[gelu,linear]" : "[silu,linear]"},
      {"logits_via_embedding", yes(shape.tied)},
      {"normalization_layer_epsilon", has_small_epsilon ? "1e-6" : "1e-5"},
      {"rope_max_timescale", theta_of(family)},
      {"rope_type", is_scaled ? "llama3.1" : "default"},
      {"attention_bias", yes(family == kQwen25)},
      {"use_qk_norm", yes(family == kQwen3 || family == kGemma3)},
      {"scale_embedding", yes(is_gemma)},
      {"norm_adds_one", yes(is_gemma)},
  };
  if (is_scaled) {
    entries.push_back({"rope_use_scale", "true"});
    entries.push_back({"rope_scaling_factor", family == kLlama32 ? "32" : "8"});
    entries.push_back({"rope_low_frequency_factor", "1"});
    entries.push_back({"rope_high_frequency_factor", "4"});
    entries.push_back({"rope_original_length", "8192"});
  }
  if (family == kGemma2 || family == kGemma3) add_gemma(shape, entries);
  return entries;
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Shape& shape : kShapes) names.emplace_back(shape.name);
  return names;
}

std::vector<PresetEntry> model_preset(std::string_view model_name, std::string_view where) {
  if (model_name == "default") return {};
  for (const Shape& shape : kShapes) {
    if (model_name == shape.name) return entries_of(shape);
  }
  const std::string what = fmt::format("{}model_name", where);
  for (const Refused& refused : kRefused) {
    if (model_name == refused.name) {
      throw user_error(what, "a model that is built", model_name,
                       fmt::format("This model is not built: {}. Take one of the families llama2, "
                                   "llama3, mistral, qwen2.5, qwen3 (dense), gemma, gemma2 or "
                                   "gemma3.",
                                   refused.reason));
    }
  }
  std::vector<std::string> names = model_names();
  for (const Refused& refused : kRefused) names.emplace_back(refused.name);
  const std::string nearest = nearest_name(model_name, names);
  throw user_error(what, "default or a known model", model_name.empty() ? "nothing" : model_name,
                   nearest.empty() ? fmt::format("Known models: {}.", join_with_or(model_names()))
                                   : fmt::format("Did you mean {}?", nearest));
}

}  // namespace odyssey
