// SPDX-License-Identifier: Apache-2.0
// Loss and gradients of the whole model against the dense fp64 decoder and its finite differences,
// for each model family, on one rank and on several.
#include "odyssey/model/decoder.h"

#include <cmath>
#include <mutex>

#include <gtest/gtest.h>

#include "odyssey/base/random.h"
#include "odyssey/comm/thread_group.h"
#include "odyssey/model/dense_decoder.h"
#include "odyssey/sequence/shard.h"

namespace odyssey {
namespace {

constexpr int64_t kLength = 21;

RunConfig tiny() {
  RunConfig config;
  ModelConfig& m = config.model;
  m.embedding = 8;
  m.mlp = 10;
  m.layers = 2;
  m.vocabulary = 13;
  m.query_heads = 4;
  m.kv_heads = 2;
  m.head_size = 6;
  m.data_type = DataType::kFloat32;
  config.data.sequence_length = kLength;
  config.data.global_batch_rows = 1;
  config.init_seed = 5;
  return config;
}

// Three documents (one of a single token), then padding; positions restart in each.
DenseRow row() {
  DenseRow r;
  const Random random(8, 1);
  for (int64_t t = 0; t < kLength; ++t) {
    const int32_t segment = t < 9 ? 1 : t < 10 ? 2 : t < 18 ? 3 : 0;
    const int64_t first = segment == 1 ? 0 : segment == 2 ? 9 : 10;
    r.tokens.push_back(static_cast<int32_t>(random.integer(t, 13)));
    r.targets.push_back(static_cast<int32_t>(random.integer(100 + t, 13)));
    r.positions.push_back(segment == 0 ? 0 : static_cast<int32_t>(t - first));
    r.segments.push_back(segment);
    r.weights.push_back(segment == 0 || t == 8 || t == 9 || t == 17 ? 0.0f : 1.0f);
  }
  return r;
}

// What all ranks together computed, with the shards put in place.
struct Result {
  LossSum loss;
  std::vector<double> weights, gradients;  // all parameters
};

// Random weights everywhere, so that norms and biases are not at their special starting values.
float weight_at(int64_t index) {
  return static_cast<float>(0.35 * Random(9, 9).normal(static_cast<uint64_t>(index))) +
         (index % 3 == 0 ? 0.4f : 0);
}

Result run(RunConfig config, int ring, int ulysses, bool gather, PlacementKind placement) {
  config.parallel.ring_size = ring;
  config.parallel.ulysses_size = ulysses;
  config.parallel.outer_gather = gather;
  config.parallel.placement = placement;
  const std::vector<ParameterGroup> groups = parameter_groups(config.model);
  Result result;
  result.weights.resize(parameter_total(groups));
  result.gradients.resize(parameter_total(groups));
  std::mutex mutex;
  run_on_threads(ring * ulysses, [&](Group& world) {
    Mesh mesh(world, 1, 1, ring, ulysses);
    Decoder<float> decoder(config, mesh);
    ShardedParameters<float>& parameters = decoder.parameters();
    const int shards = world.size(), rank = world.rank();
    // Global index of every element of this rank's shard.
    std::vector<int64_t> at;
    int64_t offset = 0;
    for (const ParameterGroup& group : groups) {
      for (int64_t i = part_begin(group.size, shards, rank);
           i < part_begin(group.size, shards, rank + 1); ++i) {
        at.push_back(offset + i);
      }
      offset += group.size;
    }
    ASSERT_EQ(at.size(), parameters.weights().size());
    for (size_t i = 0; i < at.size(); ++i) parameters.weights()[i] = weight_at(at[i]);

    const DenseRow whole = row();
    const std::vector<Run> runs =
        row_placements(decoder.layout().placement, 1, whole.segments)[0].local_rows(
            mesh.ring_index(), mesh.ulysses_index());
    const auto take = [&](const std::vector<int32_t>& from) {
      std::vector<int32_t> part(count_rows(runs));
      take_rows(runs, from, part);
      return part;
    };
    LocalBatch batch{
        take(whole.tokens), take(whole.targets), take(whole.positions), {}, whole.segments};
    for (int64_t i = 0; i < count_rows(runs); ++i)
      batch.weights.push_back(whole.weights[position_of(runs, i)]);
    LossSum sum;
    // Twice: gradients add up, nothing else carries over.
    for (int call = 0; call < 2; ++call) sum = decoder.forward_backward(batch);
    const std::lock_guard lock(mutex);
    result.loss.loss += sum.loss;
    result.loss.weight += sum.weight;
    for (size_t i = 0; i < at.size(); ++i) {
      result.weights[at[i]] = double{parameters.weights()[i]};
      result.gradients[at[i]] = double{parameters.gradients()[i]} / 2;
    }
  });
  return result;
}

void expect_gradients(const RunConfig& config) {
  const std::vector<ParameterGroup> groups = parameter_groups(config.model);
  const DenseRow whole = row();
  const Result one = run(config, 1, 1, false, PlacementKind::kContiguous);
  const double expected = dense_loss(config.model, groups, one.weights, whole);
  EXPECT_NEAR(one.loss.loss, expected, 1e-5 * std::abs(expected));
  EXPECT_EQ(one.loss.weight, 15);

  // Central differences of every parameter; the error of a step of 1e-4 is far below fp32's.
  std::vector<double> values = one.weights, numeric(values.size());
  double largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double keep = values[i];
    values[i] = keep + 1e-4;
    const double above = dense_loss(config.model, groups, values, whole);
    values[i] = keep - 1e-4;
    numeric[i] = (above - dense_loss(config.model, groups, values, whole)) / 2e-4;
    values[i] = keep;
    largest = std::max(largest, std::abs(numeric[i]));
  }
  const auto compare = [&](const Result& result, const std::string& what) {
    double worst = 0;
    for (size_t i = 0; i < numeric.size(); ++i) {
      worst = std::max(worst, std::abs(result.gradients[i] - numeric[i]));
    }
    EXPECT_LE(worst, 2e-5 * largest) << what;
    EXPECT_NEAR(result.loss.loss, expected, 1e-5 * std::abs(expected)) << what;
    EXPECT_EQ(result.loss.weight, 15) << what;
  };
  compare(one, "one rank");
  compare(run(config, 4, 2, false, PlacementKind::kDualChunkSwap), "usp 4x2");
  compare(run(config, 3, 1, false, PlacementKind::kStriped), "ring 3");
  compare(run(config, 1, 4, false, PlacementKind::kContiguous), "ulysses 4");
  compare(run(config, 3, 2, false, PlacementKind::kPerDocument), "usp 3x2 per document");
  compare(run(config, 5, 1, true, PlacementKind::kDualChunkSwap), "all_gather 5");
}

TEST(Decoder, LlamaGradientsAreThoseOfFiniteDifferences) {
  expect_gradients(tiny());
}

TEST(Decoder, QwenGradientsAreThoseOfFiniteDifferences) {
  RunConfig config = tiny();
  config.model.qkv_bias = true;
  config.model.qk_norm = true;
  config.model.tied_head = true;
  expect_gradients(config);
}

TEST(Decoder, GemmaGradientsAreThoseOfFiniteDifferences) {
  RunConfig config = tiny();
  config.model.kv_heads = 1;
  config.model.activation = Activation::kGelu;
  config.model.norm_adds_one = true;
  config.model.scale_embedding = true;
  config.model.tied_head = true;
  config.model.attention_soft_cap = 2;
  expect_gradients(config);
}

TEST(Decoder, WindowChunkAndScaleReachTheAttention) {
  RunConfig config = tiny();
  config.model.masks = {{MaskKind::kLocalSliding, 4}};
  config.model.attention_scale = 0.7f;
  expect_gradients(config);
  config.model.masks = {{MaskKind::kChunk, 5}};
  expect_gradients(config);
}

// As gpt-oss: windows and causal layers in turn, with sinks; the third layer has its own mask too.
TEST(Decoder, AlternatingMasksAndSinksHaveTheGradientsOfFiniteDifferences) {
  RunConfig config = tiny();
  config.model.layers = 3;
  config.model.masks = {
      {MaskKind::kLocalSliding, 4}, {MaskKind::kCausal, 0}, {MaskKind::kChunk, 5}};
  config.model.attention_sink = true;
  expect_gradients(config);
}

TEST(Decoder, LaterGemmasHaveTheGradientsOfFiniteDifferences) {
  RunConfig config = tiny();
  config.model.activation = Activation::kGelu;
  config.model.norm_adds_one = true;
  config.model.scale_embedding = true;
  config.model.tied_head = true;
  config.model.masks = {{MaskKind::kLocalSliding, 4}, {MaskKind::kCausal, 0}};
  config.model.attention_output_norm = true;
  config.model.mlp_output_norm = true;
  config.model.attention_soft_cap = 2;
  config.model.logit_soft_cap = 1.5f;
  expect_gradients(config);
  config.model.attention_soft_cap = config.model.logit_soft_cap = 0;
  config.model.qk_norm = true;
  config.model.local_rope_theta = 50;
  expect_gradients(config);
}

// Each mask and the sinks matter: a layer that took another's would not pass the test above.
TEST(Decoder, MasksOfLayersAndSinksChangeTheLoss) {
  RunConfig config = tiny();
  const auto loss = [&] { return run(config, 2, 2, false, PlacementKind::kStriped).loss.loss; };
  std::vector<double> losses;
  const MaskRule window{MaskKind::kLocalSliding, 2}, causal;
  for (bool sinks : {false, true}) {
    config.model.attention_sink = sinks;
    for (const std::vector<MaskRule>& masks : std::vector<std::vector<MaskRule>>{
             {causal}, {window}, {causal, window}, {window, causal}}) {
      config.model.masks = masks;
      const double mine = loss();
      for (double other : losses) EXPECT_GT(std::abs(mine - other), 1e-3);
      losses.push_back(mine);
    }
  }
}

TEST(Decoder, ChunksOfTheHeadChangeNothingButRounding) {
  RunConfig config = tiny();
  const Result whole = run(config, 1, 1, false, PlacementKind::kContiguous);
  config.vocabulary_tiles = 7;
  const Result chunks = run(config, 1, 1, false, PlacementKind::kContiguous);
  EXPECT_NEAR(whole.loss.loss, chunks.loss.loss, 1e-5);
  for (size_t i = 0; i < whole.gradients.size(); ++i) {
    EXPECT_NEAR(whole.gradients[i], chunks.gradients[i], 1e-4);
  }
}

TEST(Parameters, CountMatchesTheConfiguration) {
  for (bool tied : {false, true}) {
    RunConfig config = tiny();
    config.model.qk_norm = true;
    config.model.qkv_bias = true;
    config.model.tied_head = tied;
    config.model.attention_sink = tied;
    config.model.attention_output_norm = tied;
    config.model.mlp_output_norm = true;
    EXPECT_EQ(parameter_total(parameter_groups(config.model)), parameter_count(config.model));
  }
}

TEST(Parameters, InitialValuesDoNotDependOnTheCut) {
  const std::vector<ParameterGroup> groups = parameter_groups(tiny().model);
  for (int64_t g : {0, 1, 3}) {
    std::vector<float> whole(groups[g].size);
    initialize(groups[g], g, 7, 0, whole);
    for (int64_t begin : {1, 50, 103}) {
      std::vector<float> part(std::min<int64_t>(37, groups[g].size - begin));
      initialize(groups[g], g, 7, begin, part);
      for (size_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i], whole[begin + i]);
    }
  }
}

}  // namespace
}  // namespace odyssey
