// SPDX-License-Identifier: Apache-2.0
// Whole tensors in, whole tensors out, against dense attention in fp64; and what `odyssey check`
// makes of right and wrong results.
#include "apps/attention_run.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "apps/check_cases.h"
#include "odyssey/base/error.h"
#include "odyssey/comm/thread_group.h"

namespace odyssey {
namespace {

RunConfig config_of(std::vector<std::string> words) {
  for (const char* word :
       {"base_num_query_heads=6", "base_num_kv_heads=2", "head_dim=8", "max_target_length=40"}) {
    words.emplace_back(word);
  }
  return make_run_config("", words, 0);
}

// All cases of `odyssey check`, on threads.
std::vector<CheckResult> check(const RunConfig& config) {
  const std::vector<CheckCase> cases = make_check_cases(config);
  std::vector<CheckResult> results(cases.size());
  run_on_threads(config.parallel.ranks(), [&](Group& world) {
    const auto alone = world.split(world.rank(), "one rank");
    for (size_t i = 0; i < cases.size(); ++i) {
      const CheckResult result = run_check_case(cases[i], world, *alone);
      if (world.rank() == 0) results[i] = result;
    }
  });
  return results;
}

TEST(RunAttention, EqualsDenseOnEveryLayout) {
  for (const char* dtype : {"dtype=float32", "dtype=bfloat16"}) {
    for (const std::vector<std::string>& layout : std::vector<std::vector<std::string>>{
             {},
             {"context_parallel_strategy=ring", "ici_context_parallelism=3"},
             {"context_parallel_strategy=all_gather", "ici_context_parallelism=2"},
             {"context_parallel_strategy=ulysses", "ici_context_parallelism=4"},
             {"context_parallel_strategy=usp", "ici_context_parallelism=2",
              "ici_context_usp_ulysses_parallelism=2", "context_parallel_reorder_strategy=striped"},
             {"context_parallel_strategy=ring", "ici_context_parallelism=2",
              "ici_data_parallelism=2"},
             {"context_parallel_strategy=usp", "ici_context_parallelism=3",
              "ici_context_usp_ulysses_parallelism=2", "ici_fsdp_parallelism=2",
              "context_parallel_reorder_strategy=per_document"},
             {"context_parallel_strategy=all_gather", "ici_context_parallelism=3",
              "context_parallel_reorder_strategy=per_document"},
             {"context_parallel_strategy=ulysses", "ici_context_parallelism=2",
              "ici_fsdp_parallelism=2", "ici_data_parallelism=2"}}) {
      std::vector<std::string> words = layout;
      words.emplace_back(dtype);
      for (const CheckResult& result : check(config_of(words))) {
        EXPECT_TRUE(result.ok()) << testing::PrintToString(words) << " " << result.fault << " "
                                 << result.out << " " << result.lse << " " << result.dquery << " "
                                 << result.dkey << " " << result.dvalue;
      }
    }
  }
}

TEST(RunAttention, SinksAndMaximumAreSummedOverRanks) {
  const RunConfig one = config_of({"dtype=float32"});
  const RunConfig four =
      config_of({"dtype=float32", "context_parallel_strategy=usp", "ici_context_parallelism=2",
                 "ici_context_usp_ulysses_parallelism=2"});
  AttentionProblem problem = make_check_cases(one).front().problem;
  problem.sinks = {-1, 0, 0.5, 1, 2, 3};
  AttentionResult expected, got;
  run_on_threads(1, [&](Group& world) { expected = run_attention(one, problem, world); });
  run_on_threads(4, [&](Group& world) {
    AttentionResult result = run_attention(four, problem, world);
    if (world.rank() == 0) got = std::move(result);
  });
  EXPECT_THAT(got.dsinks, testing::Pointwise(testing::FloatNear(1e-4F), expected.dsinks));
  EXPECT_THAT(got.max_logits, testing::Pointwise(testing::FloatEq(), expected.max_logits));
  EXPECT_GT(std::abs(expected.dsinks[5]), 0.01F);
}

TEST(RunAttention, AnInputErrorOnOneRankEndsAllRanks) {
  const RunConfig config =
      config_of({"context_parallel_strategy=ring", "ici_context_parallelism=3"});
  AttentionProblem problem = make_check_cases(config).front().problem;
  const ReadPart good = problem.value;
  problem.value = [&](int64_t first, std::span<float> out) {
    if (first == 0) throw UserError("value 0 is no number");
    good(first, out);
  };
  try {
    run_on_threads(3, [&](Group& world) { run_attention(config, problem, world); });
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "value 0 is no number");
  }
}

TEST(CheckCases, AWrongResultIsFound) {
  const RunConfig right = config_of({"dtype=float32"});
  CheckCase made = make_check_cases(right).front();
  const ReadPart value = made.problem.value;
  int reads = 0;
  made.problem.value = [&, value](int64_t first, std::span<float> out) {
    value(first, out);
    // The ranks read first, the reference after them.
    if (reads++ == 0) out[0] += 0.01F;
  };
  run_on_threads(1, [&](Group& world) {
    const auto alone = world.split(0, "one rank");
    const CheckResult result = run_check_case(made, world, *alone);
    EXPECT_FALSE(result.ok());
    EXPECT_GT(result.out, 1);
  });
}

TEST(CheckCases, OneWrongNumberIsFoundInBfloat16) {
  const RunConfig right = config_of({"dtype=bfloat16"});
  CheckCase made = make_check_cases(right).front();
  const ReadPart value = made.problem.value;
  int reads = 0;
  made.problem.value = [&, value](int64_t first, std::span<float> out) {
    value(first, out);
    if (reads++ == 0) out[0] += 0.25F;
  };
  run_on_threads(1, [&](Group& world) {
    const auto alone = world.split(0, "one rank");
    EXPECT_FALSE(run_check_case(made, world, *alone).ok());
  });
}

TEST(CheckResult, NotANumberIsNotOk) {
  CheckResult result;
  EXPECT_TRUE(result.ok());
  result.dkey = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(result.ok());
  result.dkey = 1.01;
  EXPECT_FALSE(result.ok());
  result = {.fault = "deadlock"};
  EXPECT_FALSE(result.ok());
}

TEST(CheckCases, HoldAtTheEdges) {
  for (const char* length : {"max_target_length=1", "max_target_length=2", "max_target_length=3"}) {
    const std::vector<std::string> words = {"base_num_query_heads=3",
                                            "base_num_kv_heads=1",
                                            "head_dim=2",
                                            "dtype=float32",
                                            "context_parallel_strategy=ring",
                                            "ici_context_parallelism=5",
                                            length};
    for (const CheckResult& result : check(make_run_config("", words, 0))) {
      EXPECT_TRUE(result.ok()) << length;
    }
  }
}

TEST(WorkImbalance, BalancedPlacementsShareTheWork) {
  const auto imbalance = [](const char* balance, const char* order) {
    const RunConfig config =
        config_of({"context_parallel_strategy=ring", "ici_context_parallelism=4", balance, order});
    AttentionProblem problem = make_check_cases(config).front().problem;
    problem.length = 4096;
    return work_balance(attention_layout(config, problem), {}, mask_shares(config.model)).total;
  };
  EXPECT_NEAR(imbalance("context_parallel_load_balance=true", "run_name=x"), 1, 1e-3);
  EXPECT_NEAR(imbalance("context_parallel_load_balance=false", "run_name=x"), 1.75, 1e-3);
  EXPECT_NEAR(
      imbalance("context_parallel_load_balance=true", "context_parallel_reorder_strategy=striped"),
      1, 1e-2);
}

}  // namespace
}  // namespace odyssey
