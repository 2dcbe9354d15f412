// SPDX-License-Identifier: Apache-2.0
// Keys of the rank layout and of the attention call: what `odyssey attention` knows too.
#include <fmt/core.h>

#include "odyssey/config/key_table.h"

namespace odyssey {
namespace {

// More ranks than any machine has; keeps products of axes far from overflow.
constexpr Range kAxis{1, 1'000'000, false, -1};

Key axis(std::string name, std::string default_text, std::string help) {
  return whole(std::move(name), std::move(default_text), kAxis, std::move(help));
}

// Nodes are counted, not filled up: -1 has no meaning.
Key nodes(std::string name, std::string help) {
  return whole(std::move(name), "1", Range{1, 1'000'000}, std::move(help));
}

}  // namespace

std::vector<Key> parallel_keys() {
  std::vector<Key> keys = {
      choice("context_parallel_strategy", "all_gather", {"all_gather", "ring", "ulysses", "usp"},
             "how one sequence is spread over ranks; usp = ulysses inside ring"),
      axis("ici_context_parallelism", "1",
           "usp: the ring size; all_gather, ring, ulysses: the whole degree; -1 takes the rest"),
      axis("ici_context_usp_ulysses_parallelism", "1",
           "usp: the Ulysses size (older name: ici_context_ulysses_parallelism)"),
      choice("context_parallel_outer", "ring", {"ring", "all_gather"},
             "Odyssey's own: how usp exchanges keys and values over its ring: block by block, or "
             "all before the first is worked on"),
      nodes("dcn_context_parallelism",
            "times ici_context_parallelism: the part of that axis that lies across nodes"),
      nodes("dcn_context_usp_ulysses_parallelism",
            "usp: times ici_context_usp_ulysses_parallelism: the part across nodes"),
      axis("ici_data_parallelism", "1", "ranks that hold other rows and all weights"),
      axis(
          "ici_fsdp_parallelism", "-1",
          "ranks that hold other rows and a part of the weights; -1 takes the ranks that are left"),
      flag("context_parallel_load_balance", "true",
           "place tokens so that ranks have equal work under a causal mask"),
      choice("context_parallel_reorder_strategy", "auto",
             {"auto", "dual_chunk_swap", "striped", "per_document"},
             "balanced placement; auto: the cheapest by count, also for packed rows "
             "(docs/strategies.md)"),
      only({"context"}, "Other axes cannot take the place of the context axis.",
           text("context_sharding", "context", "the axis that cuts the sequence")),
      only(
          {"context_usp_ulysses"}, "The head exchange of usp has this axis only.",
          text("ulysses_context_sharding", "context_usp_ulysses", "the axis of the head exchange")),
      only({"", "default"}, "Name the sizes of the axes instead.",
           text("custom_mesh_and_rule", "default", "MaxText's file of mesh rules")),
      only({""}, "Name the sizes of the axes instead.",
           text("custom_mesh", "", "MaxText's named device order")),
  };
  for (const char* name :
       {"tensor", "tensor_transpose", "tensor_sequence", "expert", "pipeline", "fsdp_transpose",
        "sequence", "autoregressive", "context_autoregressive", "diloco"}) {
    keys.push_back(
        only({"1"},
             "Axes that are built: ici_data_parallelism, ici_fsdp_parallelism, "
             "ici_context_parallelism and ici_context_usp_ulysses_parallelism.",
             whole(fmt::format("ici_{}_parallelism", name), "1", {}, "an axis that is not built")));
  }
  for (const char* name :
       {"data", "fsdp", "tensor", "tensor_transpose", "tensor_sequence", "expert", "pipeline",
        "fsdp_transpose", "sequence", "autoregressive", "context_autoregressive", "diloco"}) {
    const bool is_data = std::string_view(name) == "data";
    keys.push_back(only({"1", "-1"},
                        "Axes across nodes that are built: dcn_context_parallelism and "
                        "dcn_context_usp_ulysses_parallelism.",
                        whole(fmt::format("dcn_{}_parallelism", name), is_data ? "-1" : "1", {},
                              "an axis across nodes that is not built; -1 counts as 1")));
  }
  return keys;
}

std::vector<Key> attention_keys() {
  constexpr Range kWindow{0, 2'000'000'000};
  const std::string built_masks =
      "Masks that are built: global (causal), local_sliding, chunk and full.";
  return {
      choice("attention_type", "global", {"global", "local_sliding", "chunk", "full"},
             "the mask: global is causal", built_masks),
      whole("sliding_window_size", "0", kWindow,
            "local_sliding: a query sees itself and the size - 1 keys before it"),
      whole("chunk_attn_window_size", "0", kWindow,
            "chunk: a query sees the keys before it in its chunk of this size"),
      optional_real("attn_logits_soft_cap", {0, 1e9},
                    "scores become cap * tanh(score / cap); None or 0: no cap"),
      optional_real("attention_scale", {0, 1e9, true},
                    "Odyssey's own: factor of the scores; None: 1/sqrt(head_dim)"),
      only({"autoselected", "flash", "dot_product"},
           "All three mean the same exact attention here.",
           choice("attention", "autoselected", {}, "MaxText's choice of kernel")),
      make_key(KeyType::kList, "attention_pattern", "[]",
               "Odyssey's own: masks of the layers, repeated, such as [local_sliding,global]; []: "
               "attention_type for all"),
      flag("attention_sink", "false",
           "a learned logit of each query head joins every softmax (gpt-oss)"),
      only({"false"}, "Sparse attention is not built.",
           flag("use_indexer", "false", "sparse attention by a learned index")),
      only({"false"}, "Sparse attention is not built.",
           flag("moba", "false", "mixture of block attention")),
      only({"false"}, "Decoding kernels are not built.",
           flag("use_ragged_attention", "false", "decoding kernel")),
      only({"false"}, "Decoding kernels are not built.",
           flag("use_chunked_prefill", "false", "decoding in chunks")),
  };
}

}  // namespace odyssey
