// SPDX-License-Identifier: Apache-2.0
// The command line as users meet it: help, usage errors, exit codes, whole messages.
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "apps/run_program.h"
#include "odyssey/comm/mpi_group.h"
#include "odyssey/io/test_folder.h"

namespace odyssey {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// Exit code 2 and nothing but this message.
void expect_user_error(const std::string& arguments, const std::string& message,
                       const std::string& before = "") {
  SCOPED_TRACE(arguments);
  const ProgramResult result = run_program(arguments, before);
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.err, "odyssey: error: " + message + "\n");
  EXPECT_THAT(result.out, IsEmpty());
}

TEST(Help, NoCommandAndHelpPrintTheSame) {
  const ProgramResult alone = run_program(""), asked = run_program("--help");
  EXPECT_EQ(alone.code, 0);
  EXPECT_EQ(alone.out, asked.out);
  EXPECT_EQ(run_program("-h").out, asked.out);
  EXPECT_THAT(alone.err, IsEmpty());
  for (const char* part : {"Usage: odyssey COMMAND", "Examples:", "Exit codes: 0 done",
                           "OMP_NUM_THREADS", "ODYSSEY_MAX_ISA", "  keys "}) {
    EXPECT_THAT(asked.out, HasSubstr(part));
  }
}

TEST(Help, EveryCommandHasItsOwn) {
  for (const std::string command : {"train", "check", "attention", "keys"}) {
    const ProgramResult result = run_program(command + " --help");
    EXPECT_EQ(result.code, 0);
    EXPECT_THAT(result.out, StartsWith("odyssey " + command + ": "));
    EXPECT_THAT(result.out, HasSubstr("Usage: odyssey " + command));
    EXPECT_THAT(result.out, HasSubstr("Example:\n  odyssey " + command));
    EXPECT_THAT(result.out, HasSubstr("odyssey keys"));
    EXPECT_THAT(run_program("").out, HasSubstr("\n  " + command + " "));
  }
}

TEST(Help, LinesFitATerminal) {
  for (const std::string command :
       {"", "train", "check", "attention", "bench", "plan", "calibrate", "keys"}) {
    std::string text = run_program(command + " --help").out;
    for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
      EXPECT_LE(end, 100U) << text.substr(0, end);
    }
  }
}

TEST(Version, IsOneLine) {
  const ProgramResult result = run_program("--version");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, testing::MatchesRegex("odyssey [0-9.]+ \\(kernels: .*\\)\n"));
}

TEST(Keys, ListsAllOrThoseWithAWord) {
  const ProgramResult all = run_program("keys"), some = run_program("keys window");
  EXPECT_EQ(all.code, 0);
  EXPECT_THAT(all.out, HasSubstr("ici_context_parallelism"));
  EXPECT_THAT(some.out, HasSubstr("sliding_window_size"));
  EXPECT_LT(some.out.size(), all.out.size());
  expect_user_error("keys a b", "odyssey keys: expected one word, got 2. See odyssey keys --help.");
}

TEST(Usage, UnknownCommandsAndOptions) {
  const std::string commands =
      "command: expected train, check, attention, bench, plan, calibrate or keys, got ";
  expect_user_error("trian", commands + "trian. Did you mean odyssey train?");
  expect_user_error("frobnicate", commands + "frobnicate. See odyssey --help.");
  expect_user_error("''", commands + "an empty word. See odyssey --help.");
  expect_user_error("--steps",
                    "option: expected --version or --help, got --steps. See odyssey --help.");
  expect_user_error(
      "train configs/tiny.yml --foo",
      "option: expected --ranks, --comm or --help, got --foo. See odyssey train --help.");
  expect_user_error("train configs/tiny.yml --steps=3",
                    "option: expected key=value, got --steps=3. Write it without dashes: steps=3.");
  expect_user_error(
      "attention --inptu x",
      "option: expected --input, --output, --ranks, --comm or --help, got --inptu. See "
      "odyssey attention --help.");
}

TEST(Usage, OptionValues) {
  const std::string see = ". See odyssey check --help.";
  for (const std::string ranks : {"0", "-1", "2x", "two", "1.5", "99999999999999999999"}) {
    expect_user_error("check --ranks=" + ranks,
                      "--ranks: expected a whole number of at least 1, got " + ranks + see);
  }
  expect_user_error("check --comm smoke", "--comm: expected auto, threads or mpi, got smoke" + see);
  EXPECT_EQ(run_program("check --ranks").code, 2);
  EXPECT_EQ(run_program("check --ranks 1 --ranks 2").code, 2);
}

TEST(Usage, WhereTheYmlStands) {
  const std::string expected =
      "odyssey train: expected CONFIG.yml before the key=value words, got ";
  const std::string see = ". See odyssey train --help.";
  expect_user_error("train", expected + "nothing" + see);
  expect_user_error("train steps=3", expected + "steps=3" + see);
  expect_user_error("train configs/tiny.yml steps=3 configs/base.yml",
                    "odyssey train: expected one CONFIG.yml, before the key=value words, got "
                    "configs/base.yml" +
                        see);
  expect_user_error("train nope.yml",
                    "nope.yml: expected a yml file, got no such file. Check the path.");
  expect_user_error("check configs", "configs: expected a yml file, got a folder. Check the path.");
  expect_user_error(
      "check configs/tiny.yml nonsense=1",
      "unknown key: expected a key of configs/base.yml, got nonsense. Keys are listed "
      "in configs/base.yml.");
}

TEST(Usage, RanksThatDoNotFit) {
  expect_user_error(
      "check configs/tiny.yml --ranks 3",
      "product of the axes: expected a divisor of the 3 ranks, got 8 "
      "(ici_data_parallelism=1 x ici_fsdp_parallelism=-1 x ici_context_parallelism=4 x "
      "ici_context_usp_ulysses_parallelism=2). Start a multiple of 8 ranks, or change "
      "an axis.");
  expect_user_error(
      "check context_parallel_strategy=ring ici_context_parallelism=5000 "
      "per_device_batch_size=1",
      "ranks in one process: expected at most 4096, got 5000. Take smaller axes, or "
      "start processes by mpirun.");
}

TEST(Usage, WrongIsaIsRefused) {
  for (const std::string arguments :
       {"check configs/tiny.yml", "train configs/tiny.yml", "attention --input x --output y"}) {
    expect_user_error(
        arguments,
        "ODYSSEY_MAX_ISA: expected ref, portable, avx2, avx512 or amx, got avx10. Unset it "
        "to use the best.",
        "ODYSSEY_MAX_ISA=avx10");
  }
}

TEST(Usage, MpiWithoutMpiIsRefused) {
  if (mpi_available()) GTEST_SKIP() << "this build has MPI";
  const ProgramResult result = run_program("check max_target_length=8 --comm mpi");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("a build without MPI"));
}

TEST(Output, AFullDiskIsNoSuccess) {
  const ProgramResult result = run_program("keys >/dev/full");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, StartsWith("odyssey: cannot write to "));
}

}  // namespace
}  // namespace odyssey
