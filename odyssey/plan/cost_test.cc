// SPDX-License-Identifier: Apache-2.0
// The model's parts: machines, the torus, counts of transfers, items of a step, memory.
#include "odyssey/plan/cost.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "odyssey/base/error.h"
#include "odyssey/plan/memory.h"
#include "odyssey/plan/network.h"

namespace odyssey {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using Words = std::vector<std::string>;

// llama3-8b on 64 TPU v5p, one sequence a step.
Job tpu_job(Words more) {
  Words words = {"hardware=tpu-v5p-64", "model_name=llama3-8b", "per_device_batch_size=0.015625",
                 "allow_split_physical_axes=true", "packing=false"};
  words.insert(words.end(), more.begin(), more.end());
  return make_job("", words);
}

Words usp(int ring, int ulysses, int64_t length, bool balance) {
  return {"context_parallel_strategy=usp", "ici_context_parallelism=" + std::to_string(ring),
          "ici_context_usp_ulysses_parallelism=" + std::to_string(ulysses),
          "max_target_length=" + std::to_string(length),
          std::string("context_parallel_load_balance=") + (balance ? "true" : "false")};
}

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Cost price(const Words& words) {
  const Job job = tpu_job(words);
  return estimate(job, count(job));
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Hardware, EveryMachineOfTheFolderIsWhole) {
  for (const std::string& name : hardware_names()) {
    const Hardware hardware = load_hardware(name);
    EXPECT_GT(hardware.tflops, 0) << name;
    EXPECT_NO_THROW(load_calibration(hardware.calibration)) << name;
  }
  EXPECT_EQ(load_hardware("tpu-v5p-64").chips, 64);
}

TEST(Hardware, OverridesReplaceFields) {
  const Words words = {"tflops=500", "chips=8", "torus=[2, 4]", "wraps=[false, true]"};
  const Hardware hardware = load_hardware("tpu-v5p-64", words);
  EXPECT_EQ(hardware.tflops, 500);
  EXPECT_THAT(hardware.torus, testing::ElementsAre(2, 4));
  EXPECT_THAT(hardware.wraps, testing::ElementsAre(false, true));
}

TEST(Hardware, RefusesWrongFieldsByName) {
  const auto message = [](Words words) {
    return message_of([&] { load_hardware("h100-8", words); });
  };
  EXPECT_THAT(message_of([] { load_hardware("tpu-v9"); }),
              HasSubstr("hardware: expected a100-8, b200-8, "));
  EXPECT_EQ(message({"chips=many"}),
            "chips: expected a whole number from 1 to 1000000, got many. Its unit stands in "
            "docs/planner.md.");
  EXPECT_THAT(message({"tflops=-1"}), HasSubstr("tflops: expected a number from 1e-06 to"));
  EXPECT_THAT(message({"tflops=nan"}), HasSubstr("tflops: expected a number"));
  EXPECT_THAT(message({"tflopz=1"}), HasSubstr("unknown field: expected kind, calibration"));
  EXPECT_THAT(message({"tflopz=1"}), HasSubstr("Did you mean tflops?"));
  EXPECT_THAT(message({"torus=[8]"}), HasSubstr("unknown field"));
  EXPECT_EQ(message({"kind=phone"}),
            "kind: expected tpu, gpu or cpu, got phone. There is nothing else.");
  EXPECT_EQ(message_of([] { load_hardware("tpu-v5p-64", Words{"chips=32"}); }).find("configs"), 0u);
}

TEST(Hardware, NamesFileAndLine) {
  const std::string path = std::filesystem::temp_directory_path() /
                           ("hardware_test_" + std::to_string(getpid()) + ".yml");
  std::ofstream(path) << "kind: gpu\ncalibration: hopper\nchips: 0\n";
  EXPECT_EQ(message_of([&] { load_hardware(path); }),
            path +
                ":3: chips: expected a whole number from 1 to 1000000, got 0. Its unit stands "
                "in docs/planner.md.");
  std::ofstream(path) << "kind: gpu\ncalibration: hopper\nchips: 8\n";
  EXPECT_EQ(message_of([&] { load_hardware(path); }),
            path +
                ": tflops: expected this field, got a file without it. Add a line 'tflops: "
                "value'.");
  std::filesystem::remove(path);
}

TEST(Torus, WholeAxesWherePossible) {
  const std::vector<int64_t> cube = {4, 4, 4};
  const auto aligned = [&](std::vector<int64_t> sizes) {
    return map_to_torus(cube, sizes).aligned;
  };
  EXPECT_TRUE(aligned({1, 1, 64, 1}));
  EXPECT_TRUE(aligned({1, 1, 16, 4}));
  EXPECT_TRUE(aligned({1, 1, 4, 16}));
  EXPECT_TRUE(aligned({4, 1, 4, 4}));
  EXPECT_TRUE(aligned({1, 1, 1, 64}));
  EXPECT_FALSE(aligned({1, 1, 8, 8}));
  EXPECT_FALSE(aligned({1, 1, 32, 2}));
  const TorusMapping split = map_to_torus(cube, std::vector<int64_t>{1, 1, 8, 8});
  ASSERT_EQ(split.parts[3].size(), 2u);
  EXPECT_EQ(split.parts[3][0].size, 4);
  EXPECT_TRUE(split.parts[3][0].whole);
  EXPECT_EQ(split.parts[3][1].size, 2);
  EXPECT_FALSE(split.parts[3][1].whole);
  // An axis that the first choice of the inner one would take from the outer.
  EXPECT_TRUE(
      map_to_torus(std::vector<int64_t>{2, 4, 8}, std::vector<int64_t>{1, 1, 8, 8}).aligned);
}

TEST(Routes, AreThoseOfTheScalingBook) {
  const Hardware v5p = load_hardware("tpu-v5p-64");
  ParallelConfig parallel;
  parallel.ring_size = 16;
  parallel.ulysses_size = 4;
  const Routes routes = route(v5p, parallel);
  // Weights: three axes, both ways. K and V: the two of the ring.
  EXPECT_DOUBLE_EQ(routes.weights, 600e9);
  EXPECT_DOUBLE_EQ(routes.gather, 400e9);
  // All-to-all on a ring takes a quarter of an all-gather: 4 x / (4 * 2 links), x = sent * 4 / 3.
  EXPECT_DOUBLE_EQ(1 / routes.exchange, 4.0 / 3 / 2 / 100e9);
  EXPECT_TRUE(routes.finding.empty());
  parallel.ring_size = 8;
  parallel.ulysses_size = 8;
  const Routes split = route(v5p, parallel);
  EXPECT_DOUBLE_EQ(split.weights, 200e9);
  EXPECT_THAT(split.finding, HasSubstr("splits a torus axis"));
}

TEST(Routes, OfNodesLeaveByTheNetwork) {
  const Hardware h100 = load_hardware("h100-64");
  ParallelConfig parallel;
  parallel.ring_size = 8;
  parallel.ulysses_size = 8;
  const Routes routes = route(h100, parallel);
  EXPECT_DOUBLE_EQ(routes.exchange, 450e9);
  EXPECT_DOUBLE_EQ(routes.neighbour, 50e9);
  EXPECT_DOUBLE_EQ(routes.gather, 50e9);
  EXPECT_DOUBLE_EQ(routes.weights, 400e9);  // eight network ports for what one node needs
  parallel.ring_size = 4;
  parallel.ulysses_size = 16;
  const Routes wide = route(h100, parallel);
  EXPECT_DOUBLE_EQ(wide.exchange, 15.0 / 8 * 50e9);
  EXPECT_THAT(wide.finding, HasSubstr("leaves the node"));
}

TEST(Counts, SizesOfTheLargestRank) {
  const Job job = tpu_job(usp(16, 4, 65536, false));
  const Counts counts = count(job);
  EXPECT_EQ(counts.head_rows, 8);
  EXPECT_EQ(counts.kv_heads, 2);
  EXPECT_EQ(counts.ring_block_tokens, 4096);
  EXPECT_EQ(counts.rank_tokens, 1024);
  EXPECT_EQ(counts.masks[0].total_pairs, int64_t{65536} * 65537 / 2);
  EXPECT_EQ(counts.parameters, 8030261248);
  EXPECT_EQ(counts.masks[0].forward.query_tiles, 8);
  EXPECT_EQ(counts.masks[0].forward.most.size(), 16u);
}

TEST(Cost, ItemsAddUpToTheStep) {
  const Cost cost = price(usp(16, 4, 262144, false));
  double sum = 0;
  for (const CostItem& item : cost.items) {
    EXPECT_GE(item.seconds, 0) << item.name;
    sum += item.seconds;
  }
  EXPECT_DOUBLE_EQ(cost.step_seconds(), sum);
  EXPECT_GT(cost.seconds("attention backward"), 0.5 * sum);
  EXPECT_EQ(cost.seconds("no such item"), 0);
  EXPECT_THAT(cost.findings, IsEmpty());
}

TEST(Cost, BalanceHalvesWorkButNotTheStaticGrid) {
  const Cost plain = price(usp(16, 4, 262144, false)), balanced = price(usp(16, 4, 262144, true));
  const auto ratio = [&](std::string_view name) {
    return balanced.seconds(name) / plain.seconds(name);
  };
  // 1/2 against 1 - 1/32, up to tiles on the diagonal.
  EXPECT_NEAR(ratio("attention forward"), 0.5 / (1 - 1.0 / 32), 0.01);
  EXPECT_NEAR(ratio("attention backward"), 0.5 / (1 - 1.0 / 32), 0.01);
  EXPECT_GT(balanced.seconds("hidden tiles"), 10 * plain.seconds("hidden tiles"));
  EXPECT_EQ(ratio("dq partial sums"), 1);
  EXPECT_EQ(ratio("ring merge"), 1);
  EXPECT_EQ(ratio("linear"), 1);
  // all_gather brings K and V back to natural order: 8 passes instead of 4.
  const Words gather = {"context_parallel_strategy=all_gather", "ici_context_parallelism=64",
                        "max_target_length=65536"};
  EXPECT_EQ(price(gather).seconds("kv layout"),
            2 * price(with(gather, {"context_parallel_load_balance=false"})).seconds("kv layout"));
}

TEST(Cost, StagedDqMakesTheBackwardGridDynamic) {
  const Words words = usp(16, 4, 262144, true);
  const Cost plain = price(words), staged = price(with(words, {"dq_reduction_steps=3"}));
  EXPECT_EQ(staged.seconds("hidden tiles"), 0);
  EXPECT_LT(staged.seconds("dq partial sums"), 0.01 * plain.seconds("dq partial sums"));
  EXPECT_EQ(staged.seconds("attention backward"), plain.seconds("attention backward"));
  // Blocks of three key tiles or fewer take no part in it.
  const Cost small = price(with(usp(32, 2, 32768, true), {"dq_reduction_steps=3"}));
  EXPECT_EQ(small.seconds("dq partial sums"),
            price(usp(32, 2, 32768, true)).seconds("dq partial sums"));
  EXPECT_THAT(small.findings, testing::Contains(HasSubstr("dq_reduction_steps=3 changes nothing")));
}

TEST(Cost, MegacoreAndBatchesUseBothCoresInBackward) {
  const Words words = usp(16, 4, 65536, true);
  const double plain = price(words).seconds("attention backward");
  EXPECT_DOUBLE_EQ(price(with(words, {"sa_bwd_dkv_megacore=true"})).seconds("attention backward"),
                   plain / 2);
  // Two rows: twice the work on twice the cores. (A second value of a key replaces none: build
  // anew.)
  const Words two = with(words, {});
  Words base = {"hardware=tpu-v5p-64", "model_name=llama3-8b", "per_device_batch_size=0.03125"};
  const Job job = make_job("", with(base, two));
  const Cost cost = estimate(job, count(job));
  EXPECT_DOUBLE_EQ(cost.seconds("attention backward"), plain);
  EXPECT_DOUBLE_EQ(cost.seconds("linear"), 2 * price(words).seconds("linear"));
}

TEST(Cost, LargerTilesMeanFewerGridSteps) {
  const Words words = usp(16, 4, 262144, false);
  const Job small = tpu_job(words);
  const Job large = tpu_job(with(words, {"sa_block_q=1024", "sa_block_kv=1024",
                                         "sa_block_q_dkv=1024", "sa_block_kv_dkv=1024"}));
  const Cost a = estimate(small, count(small)), b = estimate(large, count(large));
  EXPECT_LT(b.seconds("attention forward"), 0.8 * a.seconds("attention forward"));
  EXPECT_LT(b.seconds("attention backward"), a.seconds("attention backward"));
  EXPECT_EQ(b.seconds("dq partial sums"), a.seconds("dq partial sums") / 2);
}

TEST(Cost, KeepingTheAttentionRunsItOnce) {
  const Words words = usp(16, 4, 65536, false);
  const Cost full = price(words),
             kept = price(with(words, {"remat_policy=custom", "context=device"})),
             minimal = price(with(words, {"remat_policy=minimal"}));
  EXPECT_DOUBLE_EQ(kept.seconds("attention forward"), full.seconds("attention forward") / 2);
  EXPECT_EQ(kept.seconds("linear"), full.seconds("linear"));
  EXPECT_LT(minimal.seconds("linear"), 0.8 * full.seconds("linear"));
  EXPECT_EQ(minimal.seconds("attention forward"), full.seconds("attention forward"));
}

TEST(Cost, SplittingTheTorusCostsTheGatherOfWeights) {
  EXPECT_DOUBLE_EQ(price(usp(8, 8, 65536, false)).seconds("weights gather"),
                   3 * price(usp(16, 4, 65536, false)).seconds("weights gather"));
  EXPECT_THAT(price(usp(8, 8, 65536, false)).findings,
              testing::ElementsAre(HasSubstr("splits a torus axis")));
}

// Links so slow that they cannot hide behind the kernel.
TEST(Cost, SlowLinksShow) {
  const Words words = usp(16, 4, 65536, false);
  EXPECT_EQ(price(words).seconds("ring exposed"), 0);
  EXPECT_GT(price(with(words, {"hardware.link_gb_per_second=1"})).seconds("ring exposed"), 0.1);
}

TEST(Cost, SearchesOverLargeMachinesAreQuickEnoughToBeRunHere) {
  for (const int64_t ulysses : {1, 2, 4, 8}) {
    Words words = {"hardware=tpu-v5p-4096", "model_name=llama3-8b", "max_target_length=1048576",
                   "per_device_batch_size=0.000244140625",
                   "ici_context_parallelism=" + std::to_string(4096 / ulysses)};
    words.push_back(ulysses == 1 ? "context_parallel_strategy=ring"
                                 : "context_parallel_strategy=usp");
    words.push_back("ici_context_usp_ulysses_parallelism=" + std::to_string(ulysses));
    const Job job = make_job("", words);
    const Counts counts = count(job);
    EXPECT_EQ(counts.masks[0].total_pairs, int64_t{1048576} * 1048577 / 2);
    EXPECT_GT(estimate(job, counts).step_seconds(), 0);
  }
}

TEST(Job, RefusesWhatAMachineDoesNotHave) {
  EXPECT_THAT(message_of([] {
                tpu_job({"ici_context_parallelism=64", "dtype=float32"});
              }),
              HasSubstr("dtype: expected bfloat16 with hardware=tpu-v5p-64, got float32"));
  EXPECT_THAT(message_of([] {
                tpu_job({"ici_context_parallelism=64", "quantization=fp8"});
              }),
              HasSubstr("which has no fp8"));
  EXPECT_THAT(message_of([] { tpu_job({"ici_context_parallelism=32"}); }),
              testing::AnyOf(HasSubstr("per_device_batch_size"), HasSubstr("64 ranks")));
  EXPECT_THAT(message_of([] {
                tpu_job({"ici_context_parallelism=64", "dq_reduction_steps=2"});
              }),
              HasSubstr("dq_reduction_steps: expected 0 or 3, got 2"));
  EXPECT_THAT(message_of([] {
                tpu_job({"ici_context_parallelism=64", "remat_policy=custom", "context=offload"});
              }),
              HasSubstr("context: expected remat or device, got offload"));
}

// Ranks of a CPU machine share its cores.
TEST(Job, CpuRanksShareTheMachine) {
  const auto hardware = [](int ranks) {
    const Words words = {"hardware=cpu-cluster-16", "context_parallel_strategy=ring",
                         "ici_context_parallelism=" + std::to_string(ranks),
                         "per_device_batch_size=" + std::to_string(1.0 / ranks)};
    return make_job("", words).hardware;
  };
  EXPECT_EQ(hardware(32).tflops, 196);
  EXPECT_EQ(hardware(64).tflops, 98);
  EXPECT_EQ(hardware(64).chips_per_node, 4);
  EXPECT_EQ(hardware(16).tflops, 392);
}

TEST(Memory, IsThatOfKnownRuns) {
  constexpr double kGib = 1024.0 * 1024 * 1024;
  const auto gib = [&](const char* strategy, int64_t length) {
    const Job job = tpu_job({std::string("context_parallel_strategy=") + strategy,
                             "ici_context_parallelism=64", "context_parallel_load_balance=false",
                             "max_target_length=" + std::to_string(length)});
    return plan_memory(job, count(job)).total() / kGib;
  };
  EXPECT_NEAR(gib("all_gather", 262144), 38, 1);
  EXPECT_NEAR(gib("all_gather", 524288), 137, 2);
  EXPECT_LT(gib("ring", 524288), 22);
}

// Every item of a model of 2 window layers to 1 causal one is the mean of those of uniform models.
TEST(Cost, LayersOfSeveralMasksAddUp) {
  for (const char* hardware : {"tpu-v5p-64", "cpu-cluster-16"}) {
    for (const char* strategy : {"ring", "all_gather"}) {
      const auto cost_of = [&](const std::string& masks) {
        std::vector<std::string> words = {fmt::format("hardware={}", hardware),
                                          "base_num_decoder_layers=12",
                                          "sliding_window_size=1024",
                                          "max_target_length=65536",
                                          "per_device_batch_size=0.125",
                                          "ici_fsdp_parallelism=-1",
                                          "ici_context_parallelism=8",
                                          fmt::format("context_parallel_strategy={}", strategy),
                                          masks,
                                          "context_parallel_reorder_strategy=striped"};
        const Job job = make_job("", words);
        return estimate(job, count(job));
      };
      const Cost window = cost_of("attention_type=local_sliding");
      const Cost causal = cost_of("attention_type=global");
      const Cost mixed = cost_of("attention_pattern=[local_sliding,local_sliding,global]");
      ASSERT_EQ(mixed.items.size(), causal.items.size());
      EXPECT_LT(window.seconds("attention forward"), causal.seconds("attention forward"));
      for (const CostItem& item : mixed.items) {
        const double expected = (2 * window.seconds(item.name) + causal.seconds(item.name)) / 3;
        EXPECT_NEAR(item.seconds, expected, 1e-9 * expected) << item.name << " " << hardware;
      }
      const double teraflops = (2 * window.model_teraflops + causal.model_teraflops) / 3;
      EXPECT_NEAR(mixed.model_teraflops, teraflops, 1e-9 * teraflops);
    }
  }
}

}  // namespace
}  // namespace odyssey
