// SPDX-License-Identifier: Apache-2.0
// Wrong configurations, each with the whole message that a user reads.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "odyssey/base/error.h"
#include "odyssey/config/run_config.h"

namespace odyssey {
namespace {

struct Wrong {
  std::vector<std::string> words;
  int64_t ranks;
  std::string message;
};

std::string message_of(const std::string& yml, const std::vector<std::string>& words,
                       int64_t ranks) {
  try {
    make_run_config(yml, words, ranks);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

void expect_messages(const std::vector<Wrong>& cases) {
  for (const Wrong& wrong : cases) {
    EXPECT_EQ(message_of("configs/base.yml", wrong.words, wrong.ranks), wrong.message);
  }
}

TEST(WrongConfig, Words) {
  expect_messages({
      {{"steps 20"}, 0, "command line: expected key=value, got steps 20. Write it as steps=20."},
      {{"=5"}, 0, "command line: expected key=value, got =5. Write a key before the '='."},
      {{""}, 0, "command line: expected key=value, got an empty word. Write it as key=value."},
      {{"--steps=20"},
       0,
       "command line: expected key=value, got --steps=20. Write it without dashes: steps=20."},
      {{"steps: 20"}, 0, "command line: expected key=value, got steps: 20. Write it as steps=20."},
      {{"stepz=20"},
       0,
       "unknown key: expected a key of configs/base.yml, got stepz. Did you mean steps?"},
      {{"zzzzzzzzzz=1"},
       0,
       "unknown key: expected a key of configs/base.yml, got zzzzzzzzzz. Keys are listed in "
       "configs/base.yml."},
      {{"ici_context_ulyses_parallelism=4"},
       0,
       "unknown key: expected a key of configs/base.yml, got ici_context_ulyses_parallelism. Did "
       "you mean ici_context_ulysses_parallelism?"},
      {{"steps=5", "steps=6"},
       0,
       "steps: expected each key once, got 5 and 6. Take one of the two out."},
      {{"steps=5", "steps=5"},
       0,
       "steps: expected each key once, got 5 and 5. Take one of the two out."},
      {{"ici_context_ulysses_parallelism=2", "ici_context_usp_ulysses_parallelism=4"},
       0,
       "ici_context_usp_ulysses_parallelism: expected the value of "
       "ici_context_ulysses_parallelism, which is the same key (2), got 4. Take one of the two "
       "out."},
  });
}

TEST(WrongConfig, Values) {
  expect_messages({
      {{"steps="},
       0,
       "steps: expected -1 or a whole number from 1 to 1000000000000, got nothing. The default is "
       "150001."},
      {{"steps=99999999999999999999"},
       0,
       "steps: expected -1 or a whole number from 1 to 1000000000000, got 99999999999999999999. "
       "The default is 150001."},
      {{"steps=0"},
       0,
       "steps: expected -1 or a whole number from 1 to 1000000000000, got 0. The default is "
       "150001."},
      {{"steps=20.0"},
       0,
       "steps: expected -1 or a whole number from 1 to 1000000000000, got 20.0. Write it as 20."},
      {{"steps=2.5"},
       0,
       "steps: expected -1 or a whole number from 1 to 1000000000000, got 2.5. The default is "
       "150001."},
      {{"steps=1e3"},
       0,
       "steps: expected -1 or a whole number from 1 to 1000000000000, got 1e3. Write it as 1000."},
      {{"packing=yes"}, 0, "packing: expected true or false, got yes. The default is true."},
      {{"learning_rate=nan"},
       0,
       "learning_rate: expected a number from 0 to 1000000, got nan. The default is 3.0e-5."},
      {{"learning_rate=-1"},
       0,
       "learning_rate: expected a number from 0 to 1000000, got -1. The default is 3.0e-5."},
      {{"per_device_batch_size=0"},
       0,
       "per_device_batch_size: expected a number above 0 and up to 1000000000, got 0. The default "
       "is 12.0."},
      {{"base_emb_dim=-4096"},
       0,
       "base_emb_dim: expected a whole number from 1 to 1048576, got -4096. The default is 2048."},
      {{"max_target_length=-8"},
       0,
       "max_target_length: expected a whole number from 1 to 2000000000, got -8. The default is "
       "2048."},
      {{"adam_b1=1"},
       0,
       "adam_b1: expected a number from 0 to 0.9999999, got 1. The default is 0.9."},
      {{"attention_scale=0"},
       0,
       "attention_scale: expected None or a number above 0 and up to 1000000000, got 0. The "
       "default is None."},
      {{"attn_logits_soft_cap=-1"},
       0,
       "attn_logits_soft_cap: expected None or a number from 0 to 1000000000, got -1. The default "
       "is None."},
      {{"dtype=float16"},
       0,
       "dtype: expected bfloat16 or float32, got float16. The default is bfloat16."},
      {{"mlp_activations=silu"},
       0,
       "mlp_activations: expected [silu,linear] or [gelu,linear], got silu. The default is "
       "[\"silu\",\"linear\"]."},
      {{"max_segments_per_seq=0"},
       0,
       "max_segments_per_seq: expected -1 or a whole number from 1 to 2000000000, got 0. The "
       "default is -1."},
      {{"comm_timeout_seconds=inf"},
       0,
       "comm_timeout_seconds: expected a number above 0 and up to 1000000000, got inf. The default "
       "is 300.0."},
      {{"steps=-1"},
       0,
       "steps: expected a number where learning_rate_schedule_steps=-1, got -1. Give one of the "
       "two."},
      {{"sa_block_q=big"},
       0,
       "sa_block_q: expected a whole number from 1 to 2000000000, got big. The default is 512."},
  });
}

TEST(WrongConfig, Layouts) {
  expect_messages({
      {{"context_parallel_strategy=rings"},
       0,
       "context_parallel_strategy: expected all_gather, ring, ulysses or usp, got rings. The "
       "default is all_gather."},
      {{"ici_context_parallelism=0"},
       0,
       "ici_context_parallelism: expected -1 or a whole number from 1 to 1000000, got 0. The "
       "default is 1."},
      {{"ici_context_parallelism=-2"},
       0,
       "ici_context_parallelism: expected -1 or a whole number from 1 to 1000000, got -2. The "
       "default is 1."},
      {{"ici_context_parallelism=-1"},
       4,
       "ici_context_parallelism: expected at most one axis of -1, got -1 for ici_fsdp_parallelism "
       "too. Give ici_fsdp_parallelism=1, or the size that is meant."},
      {{"ici_context_parallelism=3"},
       4,
       "product of the axes: expected a divisor of the 4 ranks, got 3 (ici_data_parallelism=1 x "
       "ici_fsdp_parallelism=-1 x ici_context_parallelism=3 x "
       "ici_context_usp_ulysses_parallelism=1). Start a multiple of 3 ranks, or change an axis."},
      {{"ici_context_parallelism=3", "ici_fsdp_parallelism=1"},
       4,
       "product of the axes: expected the 4 ranks, got 3 (ici_data_parallelism=1 x "
       "ici_fsdp_parallelism=1 x ici_context_parallelism=3 x "
       "ici_context_usp_ulysses_parallelism=1). Start 3 ranks, or give one axis -1 to take the "
       "rest."},
      {{"ici_context_parallelism=1000000", "ici_data_parallelism=2"},
       0,
       "product of the axes: expected at most 1000000 ranks, got more "
       "(ici_context_parallelism=1000000). Take smaller axes."},
      {{"context_parallel_strategy=ring", "ici_context_usp_ulysses_parallelism=4"},
       0,
       "ici_context_usp_ulysses_parallelism: expected 1 with context_parallel_strategy=ring, got "
       "4. Give context_parallel_strategy=usp, or set the degree of ring with "
       "ici_context_parallelism."},
      {{"ici_tensor_parallelism=2"},
       0,
       "ici_tensor_parallelism: expected 1, got 2. Axes that are built: ici_data_parallelism, "
       "ici_fsdp_parallelism, ici_context_parallelism and ici_context_usp_ulysses_parallelism."},
      {{"dcn_fsdp_parallelism=2"},
       0,
       "dcn_fsdp_parallelism: expected 1 or -1, got 2. Axes across nodes that are built: "
       "dcn_context_parallelism and dcn_context_usp_ulysses_parallelism."},
      {{"dcn_context_parallelism=-1"},
       0,
       "dcn_context_parallelism: expected a whole number from 1 to 1000000, got -1. The default is "
       "1."},
      {{"dcn_context_parallelism=2", "ici_context_parallelism=3"},
       4,
       "product of the axes: expected a divisor of the 4 ranks, got 6 (ici_data_parallelism=1 x "
       "ici_fsdp_parallelism=-1 x ici_context_parallelism=3 x "
       "ici_context_usp_ulysses_parallelism=1 x dcn_context_parallelism=2). Start a multiple of 6 "
       "ranks, or change an axis."},
      {{"context_parallel_strategy=usp", "dcn_context_parallelism=1000000",
        "dcn_context_usp_ulysses_parallelism=2"},
       0,
       "product of the axes: expected at most 1000000 ranks, got more "
       "(dcn_context_usp_ulysses_parallelism=2). Take smaller axes."},
      {{"context_parallel_strategy=ulysses", "dcn_context_usp_ulysses_parallelism=2"},
       0,
       "dcn_context_usp_ulysses_parallelism: expected 1 with context_parallel_strategy=ulysses, "
       "got 2. Give context_parallel_strategy=usp, or set the degree of ulysses with "
       "dcn_context_parallelism."},
      {{"context_parallel_strategy=ring", "context_parallel_outer=all_gather"},
       0,
       "context_parallel_outer: expected context_parallel_strategy=usp, got all_gather with "
       "context_parallel_strategy=ring. Take this key out: the other strategies have one exchange "
       "each."},
      {{"context_parallel_outer=ring"},
       0,
       "context_parallel_outer: expected context_parallel_strategy=usp, got ring with "
       "context_parallel_strategy=all_gather. Take this key out: the other strategies have one "
       "exchange each."},
      {{"context_parallel_reorder_strategy=zigzag"},
       0,
       "context_parallel_reorder_strategy: expected auto, dual_chunk_swap, striped or "
       "per_document, got zigzag. The default is auto."},
      {{"context_sharding=expert"},
       0,
       "context_sharding: expected context, got expert. Other axes cannot take the place of the "
       "context axis."},
  });
}

TEST(WrongConfig, BatchesAndData) {
  expect_messages({
      {{"ici_context_parallelism=3", "per_device_batch_size=0.5"},
       0,
       "per_device_batch_size: expected a whole number of rows, got 0.5 x 3 ranks = 1.5 rows. Give "
       "per_device_batch_size=0.6666666666666666 for 2 rows."},
      {{"ici_context_parallelism=64", "per_device_batch_size=0.001"},
       0,
       "per_device_batch_size: expected a whole number of rows, got 0.001 x 64 ranks = 0.064 rows. "
       "Give per_device_batch_size=0.015625 for 1 row."},
      {{"ici_data_parallelism=2", "ici_fsdp_parallelism=2", "ici_context_parallelism=2",
        "per_device_batch_size=0.25"},
       0,
       "per_device_batch_size: expected a multiple of 4 rows (ici_data_parallelism=2 x "
       "ici_fsdp_parallelism=2), got 0.25 x 8 ranks = 2 rows. Give per_device_batch_size=0.5 for 4 "
       "rows."},
      {{"dataset_type=tfds"},
       0,
       "dataset_type: expected synthetic or text, got tfds. Data sets that are built: synthetic "
       "(random tokens) and text (see text_path)."},
      {{"dataset_type=text"},
       0,
       "text_path: expected a file or folder with dataset_type=text, got nothing. Give "
       "text_path=FILE, or dataset_type=synthetic."},
      {{"dataset_type=text", "text_path=x", "vocab_size=100"},
       0,
       "vocab_size: expected at least 256 with dataset_type=text, got 100. Tokens of text are "
       "bytes: give vocab_size=256."},
      {{"expansion_factor_real_data=2"},
       0,
       "expansion_factor_real_data: expected -1, got 2. All rows that are loaded are trained on."},
      {{"gradient_accumulation_steps=0"},
       0,
       "gradient_accumulation_steps: expected a whole number from 1 to 1000000, got 0. The default "
       "is 1."},
      {{"attention_type=local_sliding"},
       0,
       "sliding_window_size: expected at least 1 with attention_type=local_sliding, got 0. Give "
       "sliding_window_size a size in tokens."},
      {{"attention_type=chunk", "chunk_attn_window_size=0"},
       0,
       "chunk_attn_window_size: expected at least 1 with attention_type=chunk, got 0. Give "
       "chunk_attn_window_size a size in tokens."},
      {{"sliding_window_size=-1"},
       0,
       "sliding_window_size: expected a whole number from 0 to 2000000000, got -1. The default is "
       "0."},
  });
}

TEST(WrongConfig, WhatIsNotBuilt) {
  expect_messages({
      {{"enable_checkpointing=True"},
       0,
       "enable_checkpointing: expected false, got True. Checkpoints are not built yet: give "
       "enable_checkpointing=false."},
      {{"remat_policy=minimal"},
       0,
       "remat_policy: expected full, got minimal. Each layer is recomputed from its input in the "
       "backward pass."},
      {{"opt_type=muon"},
       0,
       "opt_type: expected adamw, got muon. AdamW is the only optimizer that is built."},
      {{"lr_schedule_type=wsd"},
       0,
       "lr_schedule_type: expected cosine, got wsd. The cosine schedule is the only one that is "
       "built."},
      {{"attention=cudnn_flash_te"},
       0,
       "attention: expected autoselected, flash or dot_product, got cudnn_flash_te. All three mean "
       "the same exact attention here."},
      {{"attention_type=mla"},
       0,
       "attention_type: expected global, local_sliding, chunk or full, got mla. Masks that are "
       "built: global (causal), local_sliding, chunk and full."},
      {{"attention_pattern=local_sliding,global"},
       0,
       "attention_pattern: expected a list such as [a,b], got local_sliding,global. The default is "
       "[]."},
      {{"attention_pattern=[local_sliding,mla]", "sliding_window_size=8"},
       0,
       "attention_pattern: expected a list of global, local_sliding, chunk or full, got "
       "[local_sliding,mla]. Give the mask of each layer, such as [local_sliding,global]; the list "
       "is repeated over the layers."},
      {{"attention_pattern=[global,full,global]", "base_num_decoder_layers=2"},
       0,
       "attention_pattern: expected at most base_num_decoder_layers=2 masks, got "
       "[global,full,global]. Give no masks that no layer has, or more layers."},
      {{"attention_pattern=[chunk,global]", "attention_type=full", "chunk_attn_window_size=8"},
       0,
       "attention_type: expected global with attention_pattern=[chunk,global], got full. The "
       "pattern says the mask of every layer: give one of the two."},
      {{"attention_pattern=[global,local_sliding]"},
       0,
       "sliding_window_size: expected at least 1 with attention_pattern=[global,local_sliding], "
       "got 0. Give sliding_window_size a size in tokens."},
      {{"use_qk_clip=true", "use_qk_norm=true"},
       0,
       "use_qk_clip: expected false with use_qk_norm=true, got true. The norm of queries and keys "
       "undoes any factor of their weights, and bounds the scores itself."},
      {{"use_qk_clip=true", "attn_logits_soft_cap=30"},
       0,
       "use_qk_clip: expected false with attn_logits_soft_cap, got true. The cap bounds the scores "
       "already: give one of the two."},
      {{"dropout_rate=0.1"}, 0, "dropout_rate: expected 0.0, got 0.1. Dropout is not built."},
      {{"num_experts=8"},
       0,
       "num_experts: expected 1, got 8. Dense models only: mixtures of experts are not built."},
      {{"weight_dtype=bfloat16"},
       0,
       "weight_dtype: expected float32, got bfloat16. Weights and optimizer state are kept in "
       "float32."},
      {{"local_rope_max_timescale=10000", "attention_type=full"},
       0,
       "local_rope_max_timescale: expected -1 without local_sliding layers, got 10000. Leave it "
       "out, or give the layers windows."},
      {{"rope_linear_scaling_factor=8", "rope_type=llama3.1"},
       0,
       "rope_linear_scaling_factor: expected 1 with rope_type=llama3.1, got 8. Give one of the two "
       "scalings."},
      {{"quantization=int8"},
       0,
       "quantization: expected \"\", got int8. Quantized training is not built."},
      {{"rope_type=yarn"},
       0,
       "rope_type: expected default or llama3.1, got yarn. Scalings that are built: default (none) "
       "and llama3.1."},
      {{"load_parameters_path=/x"},
       0,
       "load_parameters_path: expected \"\", got /x. Checkpoints are not built yet."},
      {{"decoder_block=gemma"},
       0,
       "decoder_block: expected llama2 or mistral, got gemma. Qwen and Gemma come with "
       "model_name."},
  });
}

TEST(WrongConfig, Models) {
  expect_messages({
      {{"model_name=llama3-8B"},
       0,
       "model_name: expected default or a known model, got llama3-8B. Did you mean llama3-8b?"},
      {{"model_name=bert"},
       0,
       "model_name: expected default or a known model, got bert. Known models: llama2-7b, "
       "llama2-13b, llama2-70b, mistral-7b, llama3-8b, llama3-70b, llama3-405b, llama3.1-8b, "
       "llama3.1-70b, llama3.1-405b, llama3.2-1b, llama3.2-3b, llama3.3-70b, qwen2.5-1.5b, "
       "qwen2.5-7b, qwen2.5-14b, qwen3-0.6b, qwen3-1.7b, qwen3-4b, qwen3-8b, qwen3-14b, qwen3-32b, "
       "gemma-2b, gemma-7b, gemma2-2b, gemma2-9b, gemma2-27b, gemma3-4b, gemma3-12b or "
       "gemma3-27b."},
      {{"model_name=mixtral-8x7b"},
       0,
       "model_name: expected a model that is built, got mixtral-8x7b. This model is not built: it "
       "has "
       "experts. Take one of the families llama2, llama3, mistral, qwen2.5, qwen3 (dense), "
       "gemma, gemma2 or gemma3."},
      {{"model_name=gpt-oss-20b"},
       0,
       "model_name: expected a model that is built, got gpt-oss-20b. This model is not built: it "
       "has experts, a bias on the attention output and yarn scaling of RoPE. Take one of the "
       "families llama2, llama3, mistral, qwen2.5, qwen3 (dense), gemma, gemma2 or gemma3."},
      {{"model_name="},
       0,
       "model_name: expected default or a known model, got nothing. Known models: llama2-7b, "
       "llama2-13b, llama2-70b, mistral-7b, llama3-8b, llama3-70b, llama3-405b, llama3.1-8b, "
       "llama3.1-70b, llama3.1-405b, llama3.2-1b, llama3.2-3b, llama3.3-70b, qwen2.5-1.5b, "
       "qwen2.5-7b, qwen2.5-14b, qwen3-0.6b, qwen3-1.7b, qwen3-4b, qwen3-8b, qwen3-14b, qwen3-32b, "
       "gemma-2b, gemma-7b, gemma2-2b, gemma2-9b, gemma2-27b, gemma3-4b, gemma3-12b or "
       "gemma3-27b."},
      {{"model_name=llama3-8b", "base_num_decoder_layers=2"},
       0,
       "base_num_decoder_layers: expected 32, as model_name=llama3-8b has it, got 2. Leave the key "
       "out, or give override_model_config=true."},
      {{"model_name=llama3.1-8b", "rope_type=default"},
       0,
       "rope_type: expected llama3.1, as model_name=llama3.1-8b has it, got default. Leave the key "
       "out, or give override_model_config=true."},
      {{"base_num_kv_heads=3"},
       0,
       "base_num_kv_heads: expected a divisor of base_num_query_heads=16, got 3. Every key/value "
       "head serves the same number of query heads."},
      {{"head_dim=65"},
       0,
       "head_dim: expected an even number, got 65. RoPE turns pairs of numbers."},
      {{"rope_type=llama3.1", "rope_low_frequency_factor=4"},
       0,
       "rope_high_frequency_factor: expected more than rope_low_frequency_factor=4, got 4. Llama "
       "uses 1 and 4."},
  });
}

TEST(WrongConfig, FilesAreNamedWithTheirLine) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("wrong_config_test_" + std::to_string(getpid()));
  const auto message = [&](const std::string& text, const std::vector<std::string>& words) {
    std::ofstream(path) << text;
    return message_of(path, words, 0);
  };
  EXPECT_EQ(message("packing: true\nstepz: 5\n", {}),
            path +
                ":2: unknown key: expected a key of configs/base.yml, got stepz. Did you mean "
                "steps?");
  EXPECT_EQ(message("packing: true\n\nsteps: 2.5\n", {}),
            path +
                ":3: steps: expected -1 or a whole number from 1 to 1000000000000, got 2.5. The "
                "default is 150001.");
  EXPECT_EQ(message("steps:\n", {}),
            path +
                ":1: steps: expected -1 or a whole number from 1 to 1000000000000, got nothing. "
                "The default is 150001.");
  EXPECT_EQ(message("vocab_size: 256\n", {"model_name=llama3-8b"}),
            path +
                ":1: vocab_size: expected 128256, as model_name=llama3-8b has it, got 256. Leave "
                "the key out, or give override_model_config=true.");
  EXPECT_EQ(message("model_name: llama3-8bb\n", {}),
            path +
                ":1: model_name: expected default or a known model, got llama3-8bb. Did you mean "
                "llama3-8b?");
  EXPECT_EQ(
      message("ici_context_ulysses_parallelism: 2\nici_context_usp_ulysses_parallelism: 4\n", {}),
      path +
          ":2: ici_context_usp_ulysses_parallelism: expected the value of "
          "ici_context_ulysses_parallelism, which is the same key (2), got 4. Take one of "
          "the two out.");
  std::filesystem::remove(path);
  EXPECT_EQ(message_of("no/such.yml", {}, 0),
            "no/such.yml: expected a yml file, got no such file. Check the path.");
}

// Whatever the text, the answer is a UserError or a configuration, never another exception.
TEST(WrongConfig, StrangeTextIsRefusedInOrder) {
  for (const char* key : {"steps", "packing", "learning_rate", "dtype", "mlp_activations",
                          "attention_scale", "per_device_batch_size", "ici_context_parallelism"}) {
    for (const std::string& value :
         {std::string(), std::string(" "), std::string("="), std::string("\n"), std::string("{}"),
          std::string("["), std::string("]"), std::string("1e308"), std::string("-1e308"),
          std::string("0x"), std::string("\xff\xfe"), std::string(1 << 16, '9'),
          std::string("\0x", 2)}) {
      try {
        const std::vector<std::string> words = {key + ("=" + value)};
        make_run_config("", words, 0);
      } catch (const UserError&) {
      }
    }
  }
}

}  // namespace
}  // namespace odyssey
