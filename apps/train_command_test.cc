// SPDX-License-Identifier: Apache-2.0
// `odyssey train` as a user runs it: what it prints, what it writes, how it fails.
#include "apps/train_command.h"

#include <fstream>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gmock/gmock.h>

#include "apps/metrics_file.h"
#include "apps/run_program.h"
#include "odyssey/base/error.h"
#include "odyssey/io/test_folder.h"
#include "odyssey/train/memory.h"

namespace odyssey {
namespace {

using testing::HasSubstr;

const std::string kSmall =
    "train configs/tiny.yml dataset_type=synthetic max_target_length=64 steps=3 ";

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST(StepLine, IsThatOfMaxText) {
  StepReport report;
  report.step = 3;
  report.seconds = 1.2341;
  report.teraflops_per_second = 0.123;
  report.tokens_per_second = 829.123;
  report.total_weights = 8150;
  report.loss = 4.3211;
  report.perplexity = 75.27;
  EXPECT_EQ(step_line(report),
            "completed step: 3, seconds: 1.234, TFLOP/s/device: 0.123, Tokens/s/device: 829.123, "
            "total_weights: 8150, loss: 4.321, perplexity: 75.270");
}

TEST(TrainCommand, PrintsStartStepsAndEnd) {
  const ProgramResult result = run_program(kSmall + "sa_block_q=512");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");  // no progress line where there is no terminal
  for (const char* part :
       {"model: default, 459 thousand parameters", "layout: usp: ring 4 x ulysses 2",
        "data: synthetic", "balance: first batch, busiest rank 1.00 x the mean attention work",
        "8 ranks, 1 OpenMP thread each", "of it attention", " held",
        "note: no effect here: sa_block_q\n", "completed step: 0, ", "completed step: 2, ",
        "done: 3 steps, median step "}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
}

TEST(TrainCommand, MetricsHoldEveryNumberOfEveryStep) {
  const TestFolder folder;
  const std::string path = folder.write("metrics.jsonl", "old\nold\nold\nold\n");
  ASSERT_EQ(run_program(kSmall + "run_name=x record_max_logits=true metrics_file=" + path).code, 0);
  const std::vector<std::string> lines = lines_of(path);
  ASSERT_EQ(lines.size(), 3U);
  for (size_t step = 0; step < lines.size(); ++step) {
    EXPECT_THAT(lines[step], testing::StartsWith("{\"step\": " + std::to_string(step) +
                                                 ", \"run_name\": \"x\", "));
    for (const char* key :
         {"learning/loss", "learning/lm_loss", "learning/perplexity", "learning/total_weights",
          "learning/grad_norm", "learning/raw_grad_norm", "learning/param_norm",
          "learning/current_learning_rate", "learning/max_logits", "learning/qk_clipped_heads",
          "perf/step_time_seconds", "perf/per_device_tflops", "perf/per_device_tflops_per_sec",
          "perf/per_device_tokens", "perf/per_device_tokens_per_sec"}) {
      EXPECT_THAT(lines[step], HasSubstr(fmt::format("\"{}\": ", key)));
    }
  }
  ASSERT_EQ(run_program(kSmall + "metrics_file=" + path).code, 0);
  EXPECT_THAT(lines_of(path)[0], testing::Not(HasSubstr("max_logits")));
}

TEST(TrainCommand, MetricsThatCannotBeWritten) {
  const ProgramResult folder = run_program(kSmall + "metrics_file=/nowhere/x");
  EXPECT_EQ(folder.code, 2);
  EXPECT_EQ(folder.err,
            "odyssey: error: metrics_file: expected a file that may be written, got /nowhere/x (No "
            "such file or directory). Make its folder or choose another file.\n");
  EXPECT_EQ(folder.out, "");
  const ProgramResult full = run_program(kSmall + "metrics_file=/dev/full");
  EXPECT_EQ(full.code, 1);
  EXPECT_EQ(
      full.err,
      "odyssey: [rank 0 of 8] cannot write metrics_file /dev/full: No space left on device\n");
}

TEST(MetricsFile, KeepsEveryDigit) {
  const TestFolder folder;
  StepReport report;
  report.loss = 0.1 + 0.2;
  report.grad_norm = 1e-300;
  MetricsFile(folder.path("m"), "").write(report, 1);
  const std::vector<std::string> lines = lines_of(folder.path("m"));
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0], HasSubstr("\"learning/loss\": 0.30000000000000004,"));
  EXPECT_THAT(lines[0], HasSubstr("\"learning/grad_norm\": 1e-300,"));
}

TEST(TrainCommand, AFailingRankIsNamed) {
  const ProgramResult result = run_program(kSmall, "ODYSSEY_FAULT_DRILL=throw:2:2");
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, "odyssey: [rank 2 of 8] fault drill in step 2\n");
  // Rank 2 may be a step ahead of the line that rank 0 prints, but not two.
  EXPECT_THAT(result.out, HasSubstr("completed step: 0, "));
  EXPECT_THAT(result.out, testing::Not(HasSubstr("completed step: 2, ")));
}

TEST(TrainCommand, ARunThatDoesNotFitIsRefused) {
  const ProgramResult result = run_program(
      "train configs/base.yml model_name=llama3-70b base_num_decoder_layers=80 steps=1 "
      "per_device_batch_size=1000 max_target_length=131072");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err,
              testing::StartsWith("odyssey: error: memory of this run: expected at most "));
  EXPECT_EQ(result.out, "");
}

TEST(TrainCommand, ThePublishedCommandSaysWhatItNeedsAndWhichKeysMakeItFit) {
  // Word for word from MaxText's pull request for usp on 64 TPU chips.
  const ProgramResult result = run_program(
      "train configs/base.yml model_name=llama3-8b dataset_type=synthetic "
      "enable_checkpointing=False steps=20 per_device_batch_size=0.015625 packing=False "
      "attention=flash use_tokamax_splash=True use_jax_splash=False allow_split_physical_axes=True "
      "max_target_length=65536 context_parallel_strategy=usp ici_context_parallelism=16 "
      "ici_context_ulysses_parallelism=4 context_parallel_load_balance=False "
      "run_name=usp16x4_65536 base_output_directory=/tmp/out");
  if (available_memory() > int64_t{300} << 30) GTEST_SKIP() << "this machine can run it";
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err,
              testing::StartsWith("odyssey: error: memory of this run: expected at most "));
  // Scratch memory of the kernels depends on the machine.
  EXPECT_THAT(
      result.err,
      testing::ContainsRegex("got 3[0-9]+ GB: 64 ranks of [0-9.]+ GB .weights, gradients and "
                             "moments 2.01 GB, one gathered group 3.22 GB, activations [0-9]+ MB"));
  EXPECT_THAT(result.err, testing::HasSubstr("mpirun on at least "));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1);
}

}  // namespace
}  // namespace odyssey
