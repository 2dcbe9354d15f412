// SPDX-License-Identifier: Apache-2.0
// What a RunConfig holds after a yml, a preset and a command line were heard.
#include "odyssey/config/run_config.h"

#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "odyssey/base/error.h"
#include "odyssey/config/keys.h"
#include "odyssey/config/model_presets.h"

namespace odyssey {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Words = std::vector<std::string>;

RunConfig configure(const Words& words, int64_t ranks = 0) {
  return make_run_config("configs/base.yml", words, ranks);
}

Words split(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

// The command that published the USP numbers, word for word.
constexpr const char* kPublished =
    "model_name=llama3-8b dataset_type=synthetic enable_checkpointing=False steps=20 "
    "per_device_batch_size=0.015625 packing=False attention=flash use_tokamax_splash=True "
    "use_jax_splash=False allow_split_physical_axes=True max_target_length=65536 "
    "context_parallel_strategy=usp ici_context_parallelism=16 ici_context_ulysses_parallelism=4 "
    "context_parallel_load_balance=False run_name=usp16x4_65536 base_output_directory=/tmp/out";

TEST(RunConfig, ParsesThePublishedCommand) {
  const RunConfig config = configure(split(kPublished));
  EXPECT_EQ(config.parallel.ranks(), 64);
  EXPECT_EQ(config.parallel.strategy, Strategy::kUsp);
  EXPECT_EQ(config.parallel.ring_size, 16);
  EXPECT_EQ(config.parallel.ulysses_size, 4);
  EXPECT_FALSE(config.parallel.outer_gather);
  EXPECT_EQ(config.parallel.data, 1);
  EXPECT_EQ(config.parallel.fsdp, 1);
  EXPECT_EQ(config.parallel.placement, PlacementKind::kContiguous);
  EXPECT_EQ(config.data.type, DatasetType::kSynthetic);
  EXPECT_EQ(config.data.global_batch_rows, 1);
  EXPECT_EQ(config.data.sequence_length, 65536);
  EXPECT_FALSE(config.data.packing);
  EXPECT_EQ(config.steps, 20);
  EXPECT_EQ(config.optimizer.schedule_steps, 20);
  EXPECT_EQ(config.run_name, "usp16x4_65536");
  EXPECT_EQ(config.base_output_directory, "/tmp/out");
  EXPECT_THAT(config.keys_without_effect,
              ElementsAre("use_tokamax_splash", "use_jax_splash", "allow_split_physical_axes"));
  EXPECT_THAT(config.notes, IsEmpty());
  const ModelConfig& model = config.model;
  EXPECT_EQ(model.name, "llama3-8b");
  EXPECT_EQ(model.embedding, 4096);
  EXPECT_EQ(model.query_heads, 32);
  EXPECT_EQ(model.kv_heads, 8);
  EXPECT_EQ(model.vocabulary, 128256);
  EXPECT_EQ(model.rope_theta, 500000);
  EXPECT_EQ(model.rope_scaling.factor, 1);
  EXPECT_EQ(model.data_type, DataType::kBfloat16);
}

TEST(RunConfig, HasMaxTextsDefaults) {
  for (const char* yml : {"", "configs/base.yml"}) {
    const RunConfig config = make_run_config(yml, {}, 0);
    EXPECT_EQ(config.parallel.ranks(), 1);
    EXPECT_EQ(config.parallel.strategy, Strategy::kAllGather);
    EXPECT_EQ(config.data.global_batch_rows, 12);
    EXPECT_EQ(config.data.sequence_length, 2048);
    EXPECT_EQ(config.steps, 150001);
    EXPECT_EQ(config.model.embedding, 2048);
    EXPECT_THAT(config.model.masks, ElementsAre(MaskRule{MaskKind::kCausal, 0}));
    EXPECT_EQ(config.model.attention_scale, 0);
    EXPECT_EQ(config.optimizer.beta2, 0.95);
    EXPECT_THAT(config.notes, IsEmpty());
    EXPECT_THAT(config.keys_without_effect, IsEmpty());
  }
}

TEST(RunConfig, ReadsTheQuickStart) {
  const RunConfig config = make_run_config("configs/tiny.yml", {}, 8);
  EXPECT_EQ(config.parallel.ring_size, 4);
  EXPECT_EQ(config.parallel.ulysses_size, 2);
  EXPECT_EQ(config.parallel.placement, PlacementKind::kPerDocument);
  EXPECT_EQ(config.data.global_batch_rows, 1);
  EXPECT_EQ(config.data.type, DatasetType::kText);
  EXPECT_EQ(config.data.text_document_separator, "%");
  EXPECT_EQ(config.model.data_type, DataType::kFloat32);
  EXPECT_THAT(config.notes, IsEmpty());
  // The ring of the comment in the file.
  const RunConfig ring =
      make_run_config("configs/tiny.yml",
                      Words{"steps=10", "context_parallel_strategy=ring",
                            "ici_context_parallelism=8", "ici_context_usp_ulysses_parallelism=1"},
                      8);
  EXPECT_EQ(ring.parallel.ring_size, 8);
  EXPECT_EQ(ring.data.global_batch_rows, 1);
}

TEST(Layout, StrategiesPickRingAndUlyssesSizes) {
  const auto layout = [](const Words& words) { return configure(words).parallel; };
  const ParallelConfig gather = layout({"ici_context_parallelism=6"});
  EXPECT_EQ(gather.ring_size, 6);
  EXPECT_TRUE(gather.outer_gather);
  EXPECT_EQ(gather.placement, PlacementKind::kDualChunkSwap);
  const ParallelConfig ring =
      layout({"context_parallel_strategy=Ring", "ici_context_parallelism=7"});
  EXPECT_EQ(ring.ring_size, 7);
  EXPECT_EQ(ring.ulysses_size, 1);
  EXPECT_FALSE(ring.outer_gather);
  const ParallelConfig ulysses =
      layout({"context_parallel_strategy=ulysses", "ici_context_parallelism=3"});
  EXPECT_EQ(ulysses.ring_size, 1);
  EXPECT_EQ(ulysses.ulysses_size, 3);
  EXPECT_EQ(ulysses.placement, PlacementKind::kContiguous);
  const ParallelConfig corner =
      layout({"context_parallel_strategy=usp", "ici_context_usp_ulysses_parallelism=5"});
  EXPECT_EQ(corner.ring_size, 1);
  EXPECT_EQ(corner.ulysses_size, 5);
  EXPECT_EQ(corner.placement, PlacementKind::kContiguous);
}

TEST(Layout, NodesMultiplyTheAxesInsideThem) {
  const ParallelConfig ring = configure({"context_parallel_strategy=ring",
                                         "ici_context_parallelism=3", "dcn_context_parallelism=2"})
                                  .parallel;
  EXPECT_EQ(ring.ring_size, 6);
  EXPECT_EQ(ring.ring_nodes, 2);
  const ParallelConfig ulysses =
      configure({"context_parallel_strategy=ulysses", "dcn_context_parallelism=2"}, 4).parallel;
  EXPECT_EQ(ulysses.ulysses_size, 2);
  EXPECT_EQ(ulysses.ulysses_nodes, 2);
  EXPECT_EQ(ulysses.ring_nodes, 1);
  EXPECT_EQ(ulysses.fsdp, 2);
  const ParallelConfig usp =
      configure({"context_parallel_strategy=usp", "ici_context_ulysses_parallelism=-1",
                 "ici_fsdp_parallelism=1", "dcn_context_parallelism=2",
                 "dcn_context_ulysses_parallelism=3", "context_parallel_outer=all_gather"},
                24)
          .parallel;
  EXPECT_EQ(usp.ring_size, 2);
  EXPECT_EQ(usp.ulysses_size, 12);
  EXPECT_EQ(usp.ulysses_nodes, 3);
  EXPECT_TRUE(usp.outer_gather);
  EXPECT_FALSE(configure({"context_parallel_strategy=usp"}).parallel.outer_gather);
}

TEST(Layout, OneAxisTakesTheRest) {
  const Words usp = {"context_parallel_strategy=usp", "ici_context_usp_ulysses_parallelism=2",
                     "ici_context_parallelism=2"};
  EXPECT_EQ(configure(usp, 12).parallel.fsdp, 3);
  EXPECT_EQ(configure(usp, 0).parallel.fsdp, 1);
  const Words open_ring = {"context_parallel_strategy=usp", "ici_context_usp_ulysses_parallelism=2",
                           "ici_context_parallelism=-1", "ici_fsdp_parallelism=1"};
  EXPECT_EQ(configure(open_ring, 14).parallel.ring_size, 7);
  EXPECT_EQ(configure(open_ring, 0).parallel.ranks(), 2);
  const Words open_ulysses = {"context_parallel_strategy=usp", "ici_context_ulysses_parallelism=-1",
                              "ici_context_parallelism=2", "ici_fsdp_parallelism=1"};
  EXPECT_EQ(configure(open_ulysses, 6).parallel.ulysses_size, 3);
  EXPECT_EQ(configure({"ici_data_parallelism=2", "ici_fsdp_parallelism=1"}, 2).parallel.data, 2);
}

TEST(Layout, PlacementFollowsBalanceAndMask) {
  const auto placement = [](Words words) {
    words.push_back("ici_context_parallelism=4");
    return configure(words).parallel.placement;
  };
  EXPECT_EQ(placement({"context_parallel_load_balance=false"}), PlacementKind::kContiguous);
  EXPECT_EQ(placement({"context_parallel_reorder_strategy=striped"}), PlacementKind::kStriped);
  EXPECT_EQ(placement({"context_parallel_reorder_strategy=dual_chunk_swap"}),
            PlacementKind::kDualChunkSwap);
  EXPECT_EQ(placement({"attention_type=full"}), PlacementKind::kContiguous);
  EXPECT_EQ(placement({"context_parallel_reorder_strategy=per_document"}),
            PlacementKind::kPerDocument);
}

TEST(Layout, AutoCountsWhichPlacementIsCheapest) {
  const auto placement = [](Words words) {
    words.push_back("ici_context_parallelism=4");
    return configure(words).parallel.placement;
  };
  EXPECT_EQ(placement({}), PlacementKind::kDualChunkSwap);
  // A narrow window is even as it is, and needs fewer blocks when neighbours stay together.
  EXPECT_EQ(placement({"attention_type=local_sliding", "sliding_window_size=8"}),
            PlacementKind::kContiguous);
  EXPECT_EQ(placement({"attention_type=local_sliding", "sliding_window_size=2048"}),
            PlacementKind::kDualChunkSwap);
  // Packed rows.
  for (const char* mask : {"attention_type=global", "attention_type=full"}) {
    EXPECT_EQ(placement({mask, "max_segments_per_seq=4"}), PlacementKind::kPerDocument);
    EXPECT_EQ(placement({mask, "dataset_type=text", "text_path=x"}), PlacementKind::kPerDocument);
  }
  EXPECT_EQ(placement({"max_segments_per_seq=4", "attention_type=local_sliding",
                       "sliding_window_size=8"}),
            PlacementKind::kStriped);
  EXPECT_EQ(placement({"max_segments_per_seq=4", "packing=false"}), PlacementKind::kDualChunkSwap);
  EXPECT_EQ(placement({"max_segments_per_seq=4", "context_parallel_load_balance=false"}),
            PlacementKind::kContiguous);
  // Nothing is known of the rows of an attention call.
  EXPECT_EQ(make_attention_config(Words{"ici_context_parallelism=4", "attention_type=local_sliding",
                                        "sliding_window_size=8"},
                                  0)
                .parallel.placement,
            PlacementKind::kDualChunkSwap);
}

TEST(QkClip, HasAThresholdOrNone) {
  EXPECT_EQ(configure({}).optimizer.qk_clip_threshold, 0);
  EXPECT_FALSE(configure({}).records_max_logits());
  EXPECT_TRUE(configure({"record_max_logits=true", "use_qk_norm=true"}).records_max_logits());
  EXPECT_TRUE(configure({"use_qk_clip=true"}).records_max_logits());
  EXPECT_EQ(configure({"use_qk_clip=true"}).optimizer.qk_clip_threshold, 100);
  EXPECT_EQ(configure({"use_qk_clip=true", "qk_clip_threshold=30"}).optimizer.qk_clip_threshold,
            30);
  EXPECT_THAT(configure({"qk_clip_threshold=30"}).notes,
              ElementsAre("qk_clip_threshold=30 changes nothing with use_qk_clip=false"));
}

TEST(Layout, SaysWhenAWishForBalanceChangesNothing) {
  const auto notes = [](Words words) {
    words.push_back("context_parallel_strategy=ulysses");
    words.push_back("ici_context_parallelism=2");
    return configure(words).notes;
  };
  EXPECT_THAT(notes({"context_parallel_load_balance=true"}),
              ElementsAre(HasSubstr("ulysses keeps the placement contiguous")));
  EXPECT_THAT(notes({"context_parallel_reorder_strategy=striped"}),
              ElementsAre(HasSubstr("ulysses keeps the placement contiguous")));
  EXPECT_THAT(notes({}), IsEmpty());
  EXPECT_THAT(notes({"context_parallel_load_balance=false"}), IsEmpty());
}

TEST(Batch, FractionsMakeWholeRows) {
  const auto rows = [](const char* size, int64_t ranks) {
    return configure({std::string("per_device_batch_size=") + size, "ici_fsdp_parallelism=1",
                      "ici_context_parallelism=-1"},
                     ranks)
        .data.global_batch_rows;
  };
  EXPECT_EQ(rows("1", 5), 5);
  EXPECT_EQ(rows("0.2", 5), 1);
  EXPECT_EQ(rows("0.333333333", 3), 1);
  EXPECT_EQ(rows("0.4", 5), 2);
}

TEST(Steps, MinusOneStandsForTheOther) {
  const RunConfig a = configure({"steps=-1", "learning_rate_schedule_steps=50"});
  EXPECT_EQ(a.steps, 50);
  EXPECT_EQ(a.optimizer.schedule_steps, 50);
  const RunConfig b = configure({"steps=10", "learning_rate_schedule_steps=50"});
  EXPECT_EQ(b.steps, 10);
  EXPECT_EQ(b.optimizer.schedule_steps, 50);
}

TEST(Attention, ReadsMaskCapAndScale) {
  const ModelConfig model = configure({"attention_type=chunk", "chunk_attn_window_size=64",
                                       "attn_logits_soft_cap=50", "attention_scale=0.25"})
                                .model;
  EXPECT_THAT(model.masks, ElementsAre(MaskRule{MaskKind::kChunk, 64}));
  EXPECT_EQ(model.attention_soft_cap, 50);
  EXPECT_EQ(model.attention_scale, 0.25f);
  EXPECT_THAT(configure({"sliding_window_size=8"}).notes,
              ElementsAre("sliding_window_size=8 changes nothing with attention_type=global"));
}

TEST(Attention, LayersRepeatThePattern) {
  const RunConfig config =
      configure({"attention_pattern=[\"local_sliding\", local_sliding, global, chunk, global]",
                 "sliding_window_size=8", "chunk_attn_window_size=16", "attention_sink=true",
                 "base_num_decoder_layers=12"});
  const ModelConfig& model = config.model;
  const MaskRule window{MaskKind::kLocalSliding, 8}, chunk{MaskKind::kChunk, 16}, causal;
  EXPECT_THAT(model.masks, ElementsAre(window, window, causal, chunk, causal));
  // Layers 0 1 5 6 10 11; 2 4 7 9; 3 8.
  EXPECT_THAT(mask_shares(model),
              ElementsAre(MaskShare{window, 6}, MaskShare{causal, 4}, MaskShare{chunk, 2}));
  const int64_t expected[] = {0, 0, 1, 2, 1, 0, 0, 1, 2, 1, 0, 0};
  for (int64_t layer = 0; layer < 12; ++layer) {
    EXPECT_EQ(mask_index(model, layer), expected[layer]) << layer;
  }
  EXPECT_TRUE(model.attention_sink);
  EXPECT_THAT(config.notes, ElementsAre());
  // One sink a head and layer.
  const ModelConfig plain = configure({"base_num_decoder_layers=12"}).model;
  EXPECT_EQ(parameter_count(model), parameter_count(plain) + 12 * 16);
  EXPECT_THAT(mask_shares(plain), ElementsAre(MaskShare{causal, 12}));
}

TEST(Attention, OnePlacementServesTheMasksOfAllLayers) {
  const auto placement = [](std::vector<std::string> words) {
    words.insert(words.end(), {"context_parallel_strategy=ring", "ici_context_parallelism=8",
                               "sliding_window_size=1024", "max_target_length=262144",
                               "per_device_batch_size=0.125"});
    return make_run_config("", words, 8).parallel.placement;
  };
  EXPECT_EQ(placement({"attention_type=local_sliding"}), PlacementKind::kContiguous);
  EXPECT_EQ(placement({"attention_pattern=[local_sliding,global]"}), PlacementKind::kDualChunkSwap);
  const std::string packed = "max_segments_per_seq=9";
  EXPECT_EQ(placement({"attention_type=local_sliding", packed}), PlacementKind::kStriped);
  EXPECT_EQ(placement({"attention_pattern=[local_sliding,global]", packed}),
            PlacementKind::kPerDocument);
}

TEST(Attention, AsksNothingAboutModelBatchOrData) {
  const RunConfig config = make_attention_config(
      Words{"context_parallel_strategy=usp", "ici_context_parallelism=3",
            "ici_context_ulysses_parallelism=2", "dtype=float32", "base_num_kv_heads=5",
            "per_device_batch_size=0.3", "dataset_type=text", "model_name=any", "head_dim=3"},
      6);
  EXPECT_EQ(config.parallel.ring_size, 3);
  EXPECT_EQ(config.parallel.ulysses_size, 2);
  EXPECT_EQ(config.parallel.placement, PlacementKind::kDualChunkSwap);
  EXPECT_EQ(config.model.data_type, DataType::kFloat32);
  EXPECT_EQ(config.model.query_heads, 0);
  EXPECT_EQ(config.data.sequence_length, 0);
  EXPECT_THROW(make_attention_config(Words{"attention_type=mla"}, 1), UserError);
  EXPECT_THROW(make_attention_config(Words{"ici_context_parallelism=3"}, 2), UserError);
}

TEST(Preset, ParameterCountsAreThePublishedOnes) {
  const auto count = [](const std::string& name) {
    return parameter_count(configure({"model_name=" + name}).model);
  };
  EXPECT_EQ(count("llama2-7b"), 6738415616);
  EXPECT_EQ(count("llama3-8b"), 8030261248);
  EXPECT_EQ(count("llama3-70b"), 70553706496);
  EXPECT_EQ(count("llama3.1-405b"), 405853388800);
  EXPECT_EQ(count("llama3.2-1b"), 1235814400);
  EXPECT_EQ(count("llama3.2-3b"), 3212749824);
  EXPECT_EQ(count("mistral-7b"), 7241732096);
  EXPECT_EQ(count("qwen2.5-1.5b"), 1543714304);
  EXPECT_EQ(count("qwen2.5-7b"), 7615616512);
  EXPECT_EQ(count("qwen3-0.6b"), 596049920);
  EXPECT_EQ(count("qwen3-8b"), 8190735360);
  EXPECT_EQ(count("qwen3-32b"), 32762123264);
  // The published counts are for 256000 tokens; MaxText pads the vocabulary by 128.
  EXPECT_EQ(count("gemma-2b"), 2506172416 + 128 * 2048);
  EXPECT_EQ(count("gemma-7b"), 8537680896 + 128 * 3072);
  EXPECT_EQ(count("gemma2-2b"), 2614341888 + 128 * 2304);
  EXPECT_EQ(count("gemma2-9b"), 9241705984 + 128 * 3584);
  EXPECT_EQ(count("gemma2-27b"), 27227128320 + 128 * 4608);
}

TEST(Preset, EveryModelIsValidAndHasItsDetails) {
  for (const std::string& name : model_names()) {
    const ModelConfig model = configure({"model_name=" + name}).model;
    EXPECT_EQ(model.name, name);
    const bool second = name.starts_with("gemma2"), third = name.starts_with("gemma3");
    EXPECT_EQ(model.masks.size(), second ? 2u : third ? 6u : 1u) << name;
    EXPECT_EQ(model.attention_output_norm, second || third) << name;
    EXPECT_EQ(model.mlp_output_norm, second || third) << name;
    EXPECT_EQ(model.attention_soft_cap, second ? 50 : 0) << name;
    EXPECT_EQ(model.logit_soft_cap, second ? 30 : 0) << name;
    EXPECT_EQ(model.local_rope_theta, third ? 1e4 : 0) << name;
    EXPECT_FALSE(model.attention_sink) << name;
    EXPECT_EQ(model.qkv_bias, name.starts_with("qwen2.5")) << name;
    EXPECT_EQ(model.qk_norm, name.starts_with("qwen3") || third) << name;
    EXPECT_EQ(model.scale_embedding, name.starts_with("gemma")) << name;
    EXPECT_EQ(model.norm_adds_one, name.starts_with("gemma")) << name;
    EXPECT_EQ(model.activation == Activation::kGelu, name.starts_with("gemma")) << name;
    const double factor = name.starts_with("llama3.2") ? 32
                          : name.starts_with("llama3.1") || name.starts_with("llama3.3") || third
                              ? 8
                              : 1;
    EXPECT_EQ(model.rope_scaling.factor, factor) << name;
    EXPECT_EQ(model.rope_scaling.original_length, third ? 1 : 8192) << name;
    const bool has_small_epsilon = name.starts_with("qwen") || name.starts_with("gemma");
    EXPECT_EQ(model.norm_epsilon, has_small_epsilon ? 1e-6f : 1e-5f) << name;
    const double theta = name.starts_with("llama3") ? 5e5
                         : name.starts_with("llama2") || (name.starts_with("gemma") && !third)
                             ? 1e4
                             : 1e6;
    EXPECT_EQ(model.rope_theta, theta) << name;
  }
}

TEST(Preset, GemmasAlternate) {
  const ModelConfig second = configure({"model_name=gemma2-27b"}).model;
  EXPECT_THAT(mask_shares(second), ElementsAre(MaskShare{{MaskKind::kLocalSliding, 4096}, 23},
                                               MaskShare{{MaskKind::kCausal, 0}, 23}));
  EXPECT_FLOAT_EQ(second.attention_scale, 1.0f / 12);
  const ModelConfig third = configure({"model_name=gemma3-4b"}).model;
  EXPECT_THAT(mask_shares(third), ElementsAre(MaskShare{{MaskKind::kLocalSliding, 1024}, 29},
                                              MaskShare{{MaskKind::kCausal, 0}, 5}));
  EXPECT_EQ(third.attention_scale, 0);  // 1/sqrt(256)
  EXPECT_EQ(mask_index(third, 5), 1);
  EXPECT_EQ(mask_index(third, 33), 0);
}

TEST(Preset, AgreesWithEqualValuesAndYieldsWhenToldTo) {
  EXPECT_EQ(configure({"model_name=llama3-8b", "head_dim=128"}).model.head_size, 128);
  const RunConfig config = configure(
      {"model_name=llama3-8b", "override_model_config=true", "base_num_decoder_layers=2"});
  EXPECT_EQ(config.model.layers, 2);
  EXPECT_EQ(config.model.embedding, 4096);  // base.yml only repeats the default
}

TEST(Hash, TellsRunsApartAndIgnoresSpelling) {
  const uint64_t plain = configure({"steps=20"}).hash;
  EXPECT_EQ(configure({"steps=2_0"}).hash, plain);
  EXPECT_EQ(configure({"steps=20", "sa_block_q=256"}).hash, plain);
  EXPECT_EQ(make_run_config("", Words{"steps=20"}, 0).hash, plain);
  EXPECT_NE(configure({"steps=21"}).hash, plain);
  EXPECT_NE(configure({"steps=20"}, 2).hash, plain);  // fsdp takes the second rank
}

// Each switch that is used gives another hash when it is thrown.
TEST(Hash, CoversEveryUsedSwitch) {
  std::set<uint64_t> hashes = {configure({}).hash};
  size_t used = 0;
  for (const Key& key : all_keys()) {
    if (key.effect != KeyEffect::kUsed || key.type != KeyType::kBool) continue;
    ++used;
    hashes.insert(configure({key.name + (key.default_text == "true" ? "=false" : "=true")}).hash);
  }
  EXPECT_GT(used, 8u);
  EXPECT_EQ(hashes.size(), used + 1);
}

TEST(NoEffect, KeysAreNamedOnce) {
  const RunConfig config = configure({"sa_block_q=1024", "hardware=tpu", "scan_layers=False"});
  EXPECT_THAT(config.keys_without_effect, ElementsAre("sa_block_q", "scan_layers", "hardware"));
  EXPECT_THROW(configure({"sa_block_q=big"}), UserError);
}

}  // namespace
}  // namespace odyssey
