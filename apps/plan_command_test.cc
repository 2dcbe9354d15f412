// SPDX-License-Identifier: Apache-2.0
// `odyssey plan` as users run it.
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/run_program.h"
#include "odyssey/io/test_folder.h"

namespace odyssey {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::string kRun =
    "hardware=tpu-v5p-64 model_name=llama3-8b per_device_batch_size=0.015625 "
    "context_parallel_strategy=usp max_target_length=262144 ";

TEST(PlanCommand, PrintsItemsMemoryAndFindings) {
  const ProgramResult aligned = run_program(
      "plan " + kRun + "ici_context_parallelism=16 ici_context_usp_ulysses_parallelism=4");
  EXPECT_EQ(aligned.code, 0);
  EXPECT_THAT(aligned.err, IsEmpty());
  for (const char* text : {"usp: ring 16 x ulysses 4", "attention backward", "hidden tiles",
                           "ring merge", "  step  ", "of its peak", "memory of a chip"}) {
    EXPECT_THAT(aligned.out, HasSubstr(text));
  }
  EXPECT_THAT(aligned.out, Not(HasSubstr("torus")));
  const ProgramResult split = run_program(
      "plan " + kRun + "ici_context_parallelism=8 ici_context_usp_ulysses_parallelism=8");
  EXPECT_THAT(split.out, HasSubstr("note: this layout splits a torus axis"));
  EXPECT_THAT(split.out, HasSubstr("allow_split_physical_axes=true"));
}

TEST(PlanCommand, ComparesWithMeasuredTables) {
  const ProgramResult result =
      run_program("plan --validate --cross-validate configs/validation/llama3-8b-v5p-64.yml");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, HasSubstr("26 of 26 pairs"));
  EXPECT_THAT(result.out, HasSubstr("each cell from all others"));
  EXPECT_THAT(result.out, HasSubstr("usp cells from those of other strategies"));
  // Without files: all of the folder.
  EXPECT_THAT(run_program("plan --validate").out, HasSubstr("torchtitan"));
}

TEST(PlanCommand, FitsAFileOfConstants) {
  const TestFolder folder;
  const std::string path = folder.path("fitted.yml");
  const ProgramResult result =
      run_program("plan --fit configs/validation/llama3-8b-v5p-64.yml --output " + path);
  EXPECT_EQ(result.code, 0) << result.err;
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("# Fitted by `odyssey plan --fit` on:"));
  EXPECT_THAT(text.str(), HasSubstr("\nattention_efficiency: 0.9"));
}

TEST(PlanCommand, RefusesInOneMessage) {
  const auto message = [](const std::string& arguments) {
    const ProgramResult result = run_program("plan " + arguments);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_THAT(result.out, IsEmpty());
    return result.err;
  };
  EXPECT_THAT(message(""), HasSubstr("hardware: expected a100-8, b200-8"));
  EXPECT_THAT(message("hardware=tpu-v5p-64 hardware.chipz=1"), HasSubstr("unknown field"));
  EXPECT_THAT(message("--fit"), HasSubstr("expected files of measured tables, got none"));
  EXPECT_THAT(message("--fit --validate x.yml"), HasSubstr("expected --fit alone"));
  EXPECT_THAT(message("--output x"), HasSubstr("--output: expected --fit beside it"));
  EXPECT_THAT(message("--validate no.yml"), HasSubstr("no.yml: expected a yml file"));
  EXPECT_THAT(message("--fast"), HasSubstr("--validate, --cross-validate, --fit"));
}

}  // namespace
}  // namespace odyssey
