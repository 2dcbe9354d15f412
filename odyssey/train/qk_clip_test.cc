// SPDX-License-Identifier: Apache-2.0
// QK-clip: the rule by hand, what it does to a model, and that layouts agree on it.
#include "odyssey/train/qk_clip.h"

#include <cmath>
#include <limits>
#include <tuple>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "odyssey/comm/thread_group.h"
#include "odyssey/train/trainer.h"

namespace odyssey {
namespace {

TEST(QkClip, OneQueryHeadAKeyHeadSharesTheFactor) {
  const QkClipFactors factors = qk_clip_factors(std::vector<float>{50, 400, 100, -3}, 4, 100);
  EXPECT_EQ(factors.query, (std::vector<float>{1, 0.5f, 1, 1}));
  EXPECT_EQ(factors.key, (std::vector<float>{1, 0.5f, 1, 1}));
  EXPECT_EQ(factors.clipped, 1);
}

TEST(QkClip, HeadsThatShareAKeyEachShrinkByTheirOwnExcess) {
  const std::vector<float> most = {400, 80, 1600, 10, 20, 30};
  const QkClipFactors factors = qk_clip_factors(most, 2, 100);
  EXPECT_FLOAT_EQ(factors.key[0], 0.25f);
  EXPECT_EQ(factors.key[1], 1);
  for (size_t h = 0; h < most.size(); ++h) {
    const double shrink = double{factors.query[h]} * double{factors.key[h / 3]};
    EXPECT_NEAR(shrink, std::min(1.0, 100 / double{most[h]}), 1e-6) << h;
  }
  EXPECT_FLOAT_EQ(factors.query[2], 0.25f);  // the worst head shares its factor with the key
  EXPECT_EQ(factors.clipped, 2);
}

TEST(QkClip, HeadsWithoutAFiniteScoreStay) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const QkClipFactors factors =
      qk_clip_factors(std::vector<float>{-kInfinity, kInfinity, std::nanf(""), 4}, 4, 1);
  EXPECT_EQ(factors.query, (std::vector<float>{1, 1, 1, 0.5f}));
}

TEST(QkClip, ScalesTheRowsAndBiasesOfAHeadAndNothingElse) {
  ModelConfig model;
  model.embedding = 4;
  model.mlp = 6;
  model.layers = 2;
  model.vocabulary = 8;
  model.query_heads = 4;
  model.kv_heads = 2;
  model.head_size = 2;
  model.qkv_bias = true;
  // Head 1 of layer 1 is at 4 times the threshold; it shares key head 0 with head 0.
  const std::vector<float> most = {1, 1, 1, 1, 1, 4, 1, 1};
  for (int ranks : {1, 2, 3, 5}) {  // shards end anywhere within a head
    run_on_threads(ranks, [&](Group& world) {
      Mesh mesh(world, 1, 1, ranks, 1);
      ShardedParameters<float> parameters(parameter_groups(model), 0, mesh);
      std::fill(parameters.weights().begin(), parameters.weights().end(), 1.0f);
      EXPECT_EQ(clip_query_key(model, most, 1, parameters), 1);
      for (int64_t g = 0; g < static_cast<int64_t>(parameters.groups().size()); ++g) {
        const ParameterGroup& group = parameters.groups()[g];
        const std::span<float> shard = parameters.weights_of(g);
        for (size_t i = 0; i < shard.size(); ++i) {
          const int64_t at = parameters.shard_begin(g) + static_cast<int64_t>(i);
          float expected = 1;
          for (const ParameterTensor& tensor : group.tensors) {
            if (g != 2 || at < tensor.offset || at >= tensor.offset + tensor.size()) continue;
            if (!tensor.name.starts_with("query_key_value")) continue;
            const int64_t head = (at - tensor.offset) * 8 / tensor.size();  // 4 q, 2 k, 2 v
            expected = head == 0 ? 2.0f : head == 1 || head == 4 ? 0.5f : 1;
          }
          EXPECT_EQ(shard[i], expected) << ranks << " " << group.name << " " << at;
        }
      }
    });
  }
}

class Recorder : public TrainObserver {
 public:
  void stepped(const StepReport& report) override { steps.push_back(report); }
  std::vector<StepReport> steps;
};

std::vector<StepReport> run(const RunConfig& config) {
  Recorder recorder;
  run_on_threads(config.parallel.ranks(), [&](Group& world) { train(config, world, recorder); });
  return recorder.steps;
}

// One layer, the same batch again and again.
RunConfig tiny(int64_t kv_heads) {
  RunConfig config;
  config.data.sequence_length = 48;
  config.data.global_batch_rows = 2;
  config.data.reuse_example_batch = 1;
  config.data.max_segments_per_row = 4;
  ModelConfig& m = config.model;
  m.embedding = 24;
  m.mlp = 32;
  m.layers = 1;
  m.vocabulary = 64;
  m.query_heads = 6;
  m.kv_heads = kv_heads;
  m.head_size = 8;
  m.data_type = DataType::kFloat32;
  config.optimizer.learning_rate = 0;
  config.optimizer.schedule_steps = 4;
  config.steps = 4;
  config.record_max_logits = true;
  return config;
}

// Nothing learns, so only the clip changes weights; the scores of the only layer follow at once.
TEST(QkClip, ScoresAreAtTheThresholdInTheNextStep) {
  for (int64_t kv_heads : {6, 2, 1}) {
    for (bool bias : {false, true}) {
      RunConfig config = tiny(kv_heads);
      config.model.qkv_bias = bias;
      const std::vector<StepReport> free = run(config);
      EXPECT_EQ(free[1].max_logit, free[0].max_logit);
      EXPECT_EQ(free[0].qk_clipped_heads, 0);
      const double threshold = *free[0].max_logit * 0.6;
      config.optimizer.qk_clip_threshold = threshold;
      const std::vector<StepReport> clipped = run(config);
      EXPECT_EQ(clipped[0].max_logit, free[0].max_logit);
      EXPECT_GE(clipped[0].qk_clipped_heads, 1);
      EXPECT_NEAR(*clipped[1].max_logit, threshold, 1e-5 * threshold);
      EXPECT_LT(clipped[1].parameter_norm, free[1].parameter_norm);
    }
  }
}

TEST(QkClip, NothingChangesBelowTheThreshold) {
  RunConfig config = tiny(2);
  config.optimizer.learning_rate = 1e-2;
  const std::vector<StepReport> free = run(config);
  config.optimizer.qk_clip_threshold = 1e6;
  const std::vector<StepReport> clipped = run(config);
  for (size_t i = 0; i < free.size(); ++i) {
    EXPECT_EQ(clipped[i].loss, free[i].loss);
    EXPECT_EQ(clipped[i].parameter_norm, free[i].parameter_norm);
    EXPECT_EQ(clipped[i].qk_clipped_heads, 0);
  }
}

TEST(QkClip, IsTheSameOnEveryLayout) {
  RunConfig config = tiny(2);
  config.model.layers = 2;
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.qk_clip_threshold = *run(config)[0].max_logit * 0.5;
  const std::vector<StepReport> one = run(config);
  EXPECT_GE(one[0].qk_clipped_heads, 2);
  struct Shape {
    int data, fsdp, ring, ulysses;
    bool gather;
  };
  for (const Shape& s : {Shape{1, 1, 3, 1, false},
                         {1, 1, 4, 1, true},
                         {1, 1, 1, 4, false},
                         {1, 1, 2, 3, false},
                         {2, 1, 2, 1, false},
                         {1, 2, 1, 2, false}}) {
    SCOPED_TRACE(fmt::format("{} {} {}x{}", s.data, s.fsdp, s.ring, s.ulysses));
    config.parallel.data = s.data;
    config.parallel.fsdp = s.fsdp;
    config.parallel.ring_size = s.ring;
    config.parallel.ulysses_size = s.ulysses;
    config.parallel.outer_gather = s.gather;
    config.parallel.placement = PlacementKind::kPerDocument;
    const std::vector<StepReport> many = run(config);
    for (size_t i = 0; i < one.size(); ++i) {
      EXPECT_NEAR(many[i].loss, one[i].loss, 1e-5 * one[i].loss) << i;
      EXPECT_NEAR(*many[i].max_logit, *one[i].max_logit, 1e-4 * *one[i].max_logit) << i;
      EXPECT_NEAR(many[i].parameter_norm, one[i].parameter_norm, 1e-5 * one[i].parameter_norm);
    }
  }
}

}  // namespace
}  // namespace odyssey
