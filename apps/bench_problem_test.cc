// SPDX-License-Identifier: Apache-2.0
// Set files: what they say, and the whole message where they say it wrongly.
#include "apps/bench_problem.h"

#include <gtest/gtest.h>

#include "odyssey/base/error.h"

namespace odyssey {
namespace {

std::string message_of(const std::string& text) {
  try {
    parse_bench_set("set.txt", text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(BenchSet, CommentsAndBlankLinesAreNoProblems) {
  const auto problems = parse_bench_set("set.txt",
                                        "# comment\n\n"
                                        " attention\tbackward bf16 causal 2 4096 8 2 128 # more\r\n"
                                        "matmul backward_weight fp32 1 20 300\n"
                                        "adamw step fp32 3x5");
  ASSERT_EQ(problems.size(), 3U);
  EXPECT_EQ(problems[0].kernel, BenchKernel::kAttention);
  EXPECT_EQ(problems[0].direction, "backward");
  EXPECT_TRUE(problems[0].is_bf16());
  EXPECT_EQ(problems[0].mask, "causal");
  EXPECT_EQ(problems[0].batch, 2);
  EXPECT_EQ(problems[0].sequence, 4096);
  EXPECT_EQ(problems[0].heads, 8);
  EXPECT_EQ(problems[0].kv_heads, 2);
  EXPECT_EQ(problems[0].head_size, 128);
  EXPECT_EQ(problems[1].kernel, BenchKernel::kMatmul);
  EXPECT_FALSE(problems[1].is_bf16());
  EXPECT_EQ(problems[1].t, 1);
  EXPECT_EQ(problems[1].n, 20);
  EXPECT_EQ(problems[1].k, 300);
  EXPECT_EQ(problems[2].rows, 3);
  EXPECT_EQ(problems[2].width, 5);
  EXPECT_TRUE(problems[2].is_elementwise());
}

TEST(BenchSet, ErrorsNameFileLineAndWord) {
  const std::string see = " See odyssey bench kernel --help.";
  const std::string whole = "expected a whole number from 1 to 2147483648, got ";
  EXPECT_EQ(message_of("# nothing\n\n"), "set.txt: expected a problem on a line, got none." + see);
  EXPECT_EQ(message_of(""), "set.txt: expected a problem on a line, got none." + see);
  EXPECT_EQ(message_of("\nattenton forward"),
            "set.txt:2: kernel: expected attention, matmul, rms_norm, rope, swiglu, cross_entropy "
            "or adamw, got attenton. Did you mean attention?");
  EXPECT_EQ(message_of("attention step bf16 full 1 1 1 1 1"),
            "set.txt:1: direction: expected forward or backward, got step." + see);
  EXPECT_EQ(message_of("matmul backward bf16 1 1 1"),
            "set.txt:1: direction: expected forward, backward_input or backward_weight, got "
            "backward." +
                see);
  EXPECT_EQ(message_of("adamw step bf16 1x1"), "set.txt:1: dtype: expected fp32, got bf16." + see);
  EXPECT_EQ(message_of("attention forward fp16 full 1 1 1 1 1"),
            "set.txt:1: dtype: expected bf16 or fp32, got fp16. Did you mean bf16?");
  EXPECT_EQ(message_of("attention forward bf16 sliding 1 1 1 1 1"),
            "set.txt:1: mask: expected causal or full, got sliding." + see);
  EXPECT_EQ(message_of("attention forward bf16 full 1 4k 8 2 128"),
            "set.txt:1: sequence: " + whole + "4k." + see);
  for (const std::string number : {"0", "-1", "2147483649", "99999999999999999999", "1.5"}) {
    EXPECT_EQ(message_of("matmul forward bf16 1 " + number + " 1"),
              "set.txt:1: N: " + whole + number + "." + see);
  }
  EXPECT_EQ(message_of("attention forward bf16 full 1 4096 8 2"),
            "set.txt:1: head_dim: " + whole + "the end of the line." + see);
  EXPECT_EQ(message_of("attention forward bf16 full 1 1 8 3 64"),
            "set.txt:1: kv_heads: expected a divisor of the 8 heads, got 3." + see);
  EXPECT_EQ(message_of("matmul forward bf16 1 1 1 7"),
            "set.txt:1: end of the line: expected no more words, got 7." + see);
  for (const std::string size : {"4096", "x", "4096x", "x4096", "0x1", "3x4x5", "-1x4"}) {
    EXPECT_EQ(message_of("rms_norm forward bf16 " + size),
              "set.txt:1: size: expected ROWSxWIDTH, such as 2048x4096, got " + size + "." + see);
  }
  EXPECT_EQ(message_of("rope forward bf16 4x130"),
            "set.txt:1: size: expected a width of whole heads of 128, got 130." + see);
  EXPECT_EQ(message_of("matmul forward bf16 2147483648 2147483648 1"),
            "set.txt:1: sizes: expected tensors of at most 1e12 elements, got 4.61e+18." + see);
}

TEST(BenchSet, UnknownSetsAreNamed) {
  const auto message = [](const std::string& name) -> std::string {
    try {
      read_bench_set(name);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string sets =
      "set: expected attention, compare, elementwise, matmul, small or a file, got ";
  EXPECT_EQ(message("attenton"), sets + "attenton. Did you mean odyssey bench kernel attention?");
  EXPECT_EQ(message("nope/x.txt"), sets + "nope/x.txt. Sets stand in bench/sets.");
  EXPECT_EQ(message(""), sets + "an empty word. Sets stand in bench/sets.");
  EXPECT_EQ(message("bench/sets"),
            "bench/sets: expected a set file, got a folder. Check the path.");
}

TEST(BenchSet, EverySetOfTheTreeCanBeRead) {
  for (const std::string set : {"attention", "compare", "elementwise", "matmul", "small"}) {
    EXPECT_FALSE(read_bench_set(set).empty()) << set;
    EXPECT_FALSE(read_bench_set("bench/sets/" + set + ".txt").empty()) << set;
  }
}

BenchProblem problem(const std::string& line) {
  return parse_bench_set("set.txt", line).at(0);
}

TEST(BenchCounts, FollowTheUsualRules) {
  EXPECT_EQ(flops_of(problem("attention forward bf16 full 1 100 8 2 64")), 4.0 * 1e4 * 64 * 8);
  EXPECT_EQ(flops_of(problem("attention forward bf16 causal 3 100 8 2 64")),
            3 * 2.0 * 1e4 * 64 * 8);
  EXPECT_EQ(flops_of(problem("attention backward bf16 full 1 100 8 2 64")), 10.0 * 1e4 * 64 * 8);
  EXPECT_EQ(flops_of(problem("attention backward bf16 causal 1 100 8 2 64")), 5.0 * 1e4 * 64 * 8);
  EXPECT_EQ(flops_of(problem("matmul backward_input bf16 3 5 7")), 2.0 * 3 * 5 * 7);
  EXPECT_EQ(flops_of(problem("adamw step fp32 3x5")), 0);
  EXPECT_EQ(bytes_of(problem("matmul forward bf16 3 5 7")), 0);
  EXPECT_EQ(bytes_of(problem("rms_norm forward bf16 3x5")), 2 * 15 * 2);
  EXPECT_EQ(bytes_of(problem("rms_norm backward fp32 3x5")), 4 * 15 * 3);
  EXPECT_EQ(bytes_of(problem("rope backward bf16 3x128")), 2 * 3 * 128 * 2);
  EXPECT_EQ(bytes_of(problem("swiglu forward bf16 3x5")), 2 * 15 * 3);
  EXPECT_EQ(bytes_of(problem("swiglu backward bf16 3x5")), 2 * 15 * 5);
  EXPECT_EQ(bytes_of(problem("cross_entropy forward bf16 3x5")), 4 * 15);
  EXPECT_EQ(bytes_of(problem("cross_entropy backward bf16 3x5")), 4 * 15 + 2 * 15);
  EXPECT_EQ(bytes_of(problem("adamw step fp32 3x5")), 4 * 15 * 7);
}

}  // namespace
}  // namespace odyssey
