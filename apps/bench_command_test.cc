// SPDX-License-Identifier: Apache-2.0
// `odyssey bench kernel` as users run it.
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gmock/gmock.h>

#include "apps/json_rows.h"
#include "apps/run_program.h"
#include "odyssey/io/test_folder.h"

namespace odyssey {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

void expect_user_error(const std::string& arguments, const std::string& message,
                       const std::string& before = "") {
  SCOPED_TRACE(arguments);
  const ProgramResult result = run_program("bench " + arguments, before);
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.err, "odyssey: error: " + message + "\n");
  EXPECT_THAT(result.out, IsEmpty());
}

void expect_sound(const Row& row, int threads) {
  SCOPED_TRACE(row.line());
  for (const char* key :
       {"kernel", "direction", "dtype", "isa", "mask", "batch", "sequence", "heads", "kv_heads",
        "head_dim", "threads", "clock", "runs", "median_seconds", "min_seconds", "max_seconds",
        "tflops", "share_of_peak", "speedup"}) {
    EXPECT_TRUE(row.has(key)) << key;
  }
  EXPECT_EQ(row.number("threads"), threads);
  EXPECT_GE(row.number("runs"), 3);
  EXPECT_LE(row.number("runs"), 31);
  EXPECT_GT(row.number("min_seconds"), 0);
  EXPECT_LE(row.number("min_seconds"), row.number("median_seconds"));
  EXPECT_LE(row.number("median_seconds"), row.number("max_seconds"));
  EXPECT_GT(row.number("share_of_peak"), 0);
  const bool is_matmul = row.text("kernel") == "matmul";
  if (is_matmul || row.text("kernel") == "attention") {
    EXPECT_GT(row.number("tflops"), 0);
    EXPECT_GT(row.number("live_peak_tflops"), 0);
    for (const char* key : {"t", "n", "k"}) EXPECT_EQ(row.has(key), is_matmul) << key;
  } else {
    for (const char* key : {"gbytes_per_second", "copy_gbytes_per_second", "rows", "width"}) {
      EXPECT_GT(row.number(key), 0) << key;
    }
  }
}

TEST(BenchKernel, SmallSetGivesAllKeys) {
  const TestFolder folder;
  const std::string path = folder.path("rows.jsonl");
  const ProgramResult result = run_program(
      "bench kernel bench/sets/small.txt --threads 1 --clock cpu --seconds 0.05 --json '" + path +
      "'");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_THAT(result.out, StartsWith("kernels: "));
  const std::vector<Row> rows = read_rows(path);
  EXPECT_EQ(rows.size(), 12U);
  std::set<std::string> kernels;
  for (const Row& row : rows) {
    expect_sound(row, 1);
    EXPECT_EQ(row.text("clock"), "cpu");
    kernels.insert(row.text("kernel"));
    EXPECT_THAT(result.out, HasSubstr(fmt::format("\n{} ", row.text("kernel"))));
  }
  EXPECT_EQ(kernels.size(), 7U);
}

TEST(BenchKernel, NumbersOfThreadsTakeTurns) {
  const TestFolder folder;
  const std::string set = folder.path("mine.txt"), path = folder.path("rows.jsonl");
  std::ofstream(set) << "attention forward bf16 full 1 64 2 1 32\nrms_norm forward fp32 4x8\n";
  const ProgramResult result =
      run_program("bench kernel '" + set + "' --threads 2,1 --seconds 0.01 --json '" + path + "'");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(" speedup\n"));
  const std::vector<Row> rows = read_rows(path);
  ASSERT_EQ(rows.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    expect_sound(rows[i], i % 2 == 0 ? 2 : 1);
    if (i % 2 == 0) {
      EXPECT_EQ(rows[i].number("speedup"), 1);
      EXPECT_EQ(rows[i].number("runs"), rows[i + 1].number("runs"));
    } else {
      EXPECT_GT(rows[i].number("speedup"), 0);
    }
  }
}

TEST(BenchKernel, TwoThreadsAndASetOfOnesOwn) {
  const TestFolder folder;
  const std::string set = folder.path("mine.txt"), path = folder.path("rows.jsonl");
  std::ofstream(set) << "attention backward bf16 causal 2 33 3 1 20\nmatmul forward fp32 1 1 1\n"
                        "cross_entropy forward bf16 1x1\n";
  const ProgramResult result =
      run_program("bench kernel '" + set + "' --threads 2 --seconds 0.01 --json '" + path + "'");
  ASSERT_EQ(result.code, 0) << result.err;
  const std::vector<Row> rows = read_rows(path);
  ASSERT_EQ(rows.size(), 3U);
  for (const Row& row : rows) expect_sound(row, 2);
  EXPECT_EQ(rows[0].number("batch"), 2);
  EXPECT_EQ(rows[0].number("sequence"), 33);
  EXPECT_EQ(rows[0].number("kv_heads"), 1);
  EXPECT_EQ(rows[0].number("head_dim"), 20);
  EXPECT_EQ(rows[1].text("mask"), "none");
}

TEST(BenchKernel, HelpNamesOptionsAndKernels) {
  const ProgramResult result = run_program("bench kernel --help");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, StartsWith("odyssey bench kernel: "));
  for (const char* part :
       {"Usage: odyssey bench kernel [SET ...]", "--json FILE", "--threads LIST", "--seconds S",
        "--clock", "Example:\n  odyssey bench kernel", "adamw", "cross_entropy"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
  EXPECT_THAT(run_program("").out, HasSubstr("\n  bench "));
}

TEST(BenchKernel, BadUsageIsRefusedBeforeAnythingRuns) {
  const std::string see = " See odyssey bench kernel --help.";
  expect_user_error("kernel small attenton",
                    "set: expected attention, compare, elementwise, matmul, small or a file, got "
                    "attenton. Did you mean odyssey bench kernel attention?");
  for (const std::string threads : {"0", "-1", "two", "1.5", "1025"}) {
    expect_user_error(
        "kernel small --threads=" + threads,
        "--threads: expected whole numbers from 1 to 1024, with commas between them, got " +
            threads + "." + see);
  }
  for (const std::string seconds : {"0", "-1", "nan", "1s", "3601", "inf"}) {
    expect_user_error(
        "kernel small --seconds=" + seconds,
        "--seconds: expected a number above 0, at most 3600, got " + seconds + "." + see);
  }
  expect_user_error("kernel small --clock sun", "--clock: expected wall or cpu, got sun." + see);
  for (const std::string threads : {"2", "1,2"}) {
    expect_user_error("kernel small --clock cpu --threads " + threads,
                      "--clock: expected wall with 2 threads, got cpu." + see);
  }
  expect_user_error("kernel small --threads 1,1",
                    "--threads: expected each value once, got 1 twice." + see);
  expect_user_error(
      "kernel small --jsn x",
      "option: expected --json, --threads, --seconds, --clock or --help, got --jsn." + see);
  expect_user_error(
      "kernel small --json nope/rows.jsonl",
      "--json: expected a file that may be written, got nope/rows.jsonl (No such file "
      "or directory). Make its folder or choose another file.");
  EXPECT_EQ(run_program("bench kernel small", "ODYSSEY_MAX_ISA=avx10").code, 2);
}

TEST(BenchKernel, AFullDiskIsNoSuccess) {
  const TestFolder folder;
  const std::string set = folder.path("mine.txt");
  std::ofstream(set) << "matmul forward fp32 1 1 1\n";
  const ProgramResult result =
      run_program("bench kernel '" + set + "' --seconds 0.01 --json /dev/full");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("cannot write /dev/full: No space left on device"));
}

}  // namespace
}  // namespace odyssey
