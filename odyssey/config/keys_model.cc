// SPDX-License-Identifier: Apache-2.0
// Keys of the decoder model. The bounds keep every product of sizes within 63 bits.
#include "odyssey/config/key_table.h"

namespace odyssey {
namespace {

constexpr Range kWidth{1, 1 << 20};
constexpr Range kHeads{1, 4096};
constexpr Range kLayers{1, 65536};

std::vector<Key> shape_keys() {
  Key activations = make_key(KeyType::kList, "mlp_activations", "[\"silu\",\"linear\"]",
                             "gate and value of the MLP");
  activations.accepted = {"[silu,linear]", "[gelu,linear]"};
  return {
      text("model_name", "default",
           "a preset such as llama3-8b, or default: the shape is what the keys below say"),
      flag("override_model_config", "false", "lets keys differ from the preset of model_name"),
      whole("base_emb_dim", "2048", kWidth, "E: width of the embedding"),
      whole("base_num_query_heads", "16", kHeads, "H: query heads"),
      whole("base_num_kv_heads", "16", kHeads, "K: key/value heads; divides H"),
      whole("head_dim", "128", kHeads, "D: size of a head; even"),
      whole("base_mlp_dim", "7168", kWidth, "F: width of the MLP"),
      whole("base_num_decoder_layers", "16", kLayers, "L: layers"),
      whole("vocab_size", "32000", {1, 2'000'000'000}, "V: tokens of the vocabulary"),
      activations,
      flag("logits_via_embedding", "false", "the embedding is the output head too"),
      real("normalization_layer_epsilon", "1.0e-5", {0, 1, true}, "added to the mean square"),
  };
}

std::vector<Key> detail_keys() {
  constexpr Range kFactor{0, 1e6, true};
  return {
      real("rope_max_timescale", "10000", {1, 1e12, true}, "theta of RoPE"),
      real("local_rope_max_timescale", "-1", {1, 1e12, true, -1},
           "theta of local_sliding layers, without scaling (gemma3); -1: as all others"),
      real("rope_linear_scaling_factor", "1.0", {1, 1e6},
           "divides the RoPE frequencies (gemma3); not of layers with a theta of their own"),
      choice("rope_type", "default", {"default", "llama3.1"}, "scaling of the RoPE frequencies",
             "Scalings that are built: default (none) and llama3.1."),
      flag("rope_use_scale", "true", "llama3.1: false leaves the frequencies unscaled"),
      real("rope_scaling_factor", "8.0", {1, 1e6}, "Odyssey's own: factor of llama3.1 scaling"),
      real("rope_low_frequency_factor", "1.0", kFactor,
           "Odyssey's own: longer waves than original length / this are scaled in full"),
      real("rope_high_frequency_factor", "4.0", kFactor,
           "Odyssey's own: shorter waves than original length / this are not scaled"),
      whole("rope_original_length", "8192", {1, 2'000'000'000},
            "Odyssey's own: length the model was trained on before scaling"),
      flag("attention_bias", "false", "bias on query, key and value (qwen2.5)"),
      flag("use_qk_norm", "false", "normalises queries and keys of each head (qwen3)"),
      flag("scale_embedding", "false", "Odyssey's own: embeddings times sqrt(E) (gemma)"),
      flag("norm_adds_one", "false", "Odyssey's own: norm weights count from one (gemma)"),
      flag("use_post_attn_norm", "false", "norm behind the attention, before it is added (gemma2)"),
      flag("use_post_ffw_norm", "false", "norm behind the MLP, before it is added (gemma2)"),
      optional_real("final_logits_soft_cap", {0, 1e9},
                    "output logits become cap * tanh(logit / cap) (gemma2); None or 0: no cap"),
      choice("dtype", "bfloat16", {"bfloat16", "float32"},
             "activations, transfers and compute copies of the weights"),
  };
}

std::vector<Key> fixed_keys() {
  const std::string presets = "Qwen and Gemma come with model_name.";
  return {
      only({"float32"}, "Weights and optimizer state are kept in float32.",
           choice("weight_dtype", "float32", {}, "master weights")),
      only({"float32"}, "Gradients are summed in float32.",
           choice("grad_dtype", "float32", {}, "gradients")),
      only({"llama2", "mistral"}, presets, choice("decoder_block", "llama2", {}, "kind of layer")),
      only({"1"}, "Dense models only: mixtures of experts are not built.",
           whole("num_experts", "1", {}, "experts of a layer")),
      only({"1"}, "Dense models only: mixtures of experts are not built.",
           whole("num_experts_per_tok", "1", {}, "experts a token goes to")),
      only({"0"}, "Multi-token prediction is not built.",
           whole("mtp_num_layers", "0", {}, "layers of multi-token prediction")),
      only({"1"}, "Give the sizes themselves.",
           whole("global_parameter_scale", "1", {}, "MaxText's scale of all sizes")),
      only({"0.0"}, "Dropout is not built.", real("dropout_rate", "0.0", {}, "dropout")),
      only({"false"}, "MLPs have no bias here.", flag("mlp_bias", "false", "bias of the MLP")),
      only({"false"}, "Tied logits are not divided by sqrt(E), as in Llama, Qwen and Gemma.",
           flag("normalize_embedding_logits", "false", "divide tied logits by sqrt(E)")),
      only({"true"}, "The loss is always computed in float32.",
           flag("cast_logits_to_fp32", "true", "loss in fp32")),
      only({"1"}, "RoPE starts at a time scale of 1.",
           whole("rope_min_timescale", "1", {}, "shortest wave of RoPE")),
      only({"false"}, "Text models only.", flag("use_multimodal", "false", "images beside text")),
      and_plans({"fp8"}, only({""}, "Quantized training is not built.",
                              text("quantization", "", "quantized training"))),
  };
}

}  // namespace

std::vector<Key> model_keys() {
  std::vector<Key> keys = shape_keys();
  for (Key& key : detail_keys()) keys.push_back(std::move(key));
  for (Key& key : fixed_keys()) keys.push_back(std::move(key));
  return keys;
}

}  // namespace odyssey
