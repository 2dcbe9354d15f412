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

// The flags of MaxText's USP pull request.
TEST(PlanCommand, RanksLayoutsAndMarksTheFlags) {
  const TestFolder folder;
  const std::string json = folder.path("out.json");
  const ProgramResult result = run_program(
      "plan configs/base.yml hardware=tpu-v5p-64 model_name=llama3-8b max_target_length=65536 "
      "per_device_batch_size=0.015625 packing=False context_parallel_strategy=usp "
      "ici_context_parallelism=16 ici_context_ulysses_parallelism=4 "
      "context_parallel_load_balance=False --json " +
      json);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_THAT(result.out, testing::ContainsRegex("\n>  *[0-9]+  usp 16x4 +contiguous "));
  for (const char* text : {"Why the first: ", "What one change would bring:", "Its flags: ",
                           "confidence: interpolated: the constants of tpu were fitted on 15"}) {
    EXPECT_THAT(result.out, HasSubstr(text));
  }
  std::ostringstream text;
  text << std::ifstream(json).rdbuf();
  const auto occurrences = [&](const std::string& part) {
    int count = 0;
    for (size_t at = text.str().find(part); at != std::string::npos;
         at = text.str().find(part, at + 1)) {
      ++count;
    }
    return count;
  };
  EXPECT_EQ(occurrences("\"yours\": true"), 1);
  EXPECT_EQ(occurrences("\"yours\": false"), 14);
  for (const char* key :
       {"strategy", "ring", "ulysses", "load_balance", "reorder", "step_seconds",
        "memory_bytes_per_chip", "fits", "tokens_per_second", "mfu", "breakdown"}) {
    EXPECT_GE(occurrences(std::string("\"").append(key).append("\": ")), 15) << key;
  }
  for (const char* key : {"machine", "what_ifs"}) {
    EXPECT_EQ(occurrences(std::string("\"").append(key).append("\": ")), 1) << key;
  }
}

TEST(PlanCommand, TopShortensTheTableButKeepsTheFlags) {
  const ProgramResult result = run_program(
      "plan --top 1 " + kRun + "ici_context_parallelism=64 context_parallel_load_balance=false");
  EXPECT_THAT(result.out, HasSubstr("\n    1  "));
  EXPECT_THAT(result.out, testing::ContainsRegex("\n>  *[0-9]+  usp 64x1"));
  EXPECT_THAT(result.out, Not(testing::ContainsRegex("\n    2  ")));
  EXPECT_THAT(result.out, HasSubstr("15 layouts in all"));
}

TEST(PlanCommand, DrawsIntoAFolderThatItMakes) {
  const TestFolder folder;
  const ProgramResult result =
      run_program("plan " + kRun + "ici_context_parallelism=64 --svg " + folder.path("pictures"));
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* name : {"lengths.svg", "timeline.svg", "timeline-best.svg"}) {
    std::ostringstream text;
    text << std::ifstream(folder.path("pictures/" + std::string(name))).rdbuf();
    EXPECT_THAT(text.str(), testing::StartsWith("<svg xmlns")) << name;
    EXPECT_THAT(text.str(), HasSubstr("</svg>")) << name;
  }
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
  EXPECT_THAT(message("--fast"), HasSubstr("--top, --json, --svg, --validate, --cross-validate"));
  EXPECT_THAT(message("--svg"), HasSubstr("each option once and with its value"));
  EXPECT_THAT(message("--top 0 hardware=h100-8"), HasSubstr("--top: expected a whole number"));
  EXPECT_THAT(message("--json x --validate"),
              HasSubstr("--json: expected no other mode beside it"));
  EXPECT_THAT(message("hardware=tpu-v9"), HasSubstr("hardware: expected a100-8, b200-8"));
  EXPECT_THAT(message(kRun + "ici_context_parallelism=48"), HasSubstr("the 64 ranks"));
  const std::string one = kRun + "ici_context_parallelism=64 ";
  EXPECT_THAT(message(one + "--json no/such/folder/x.json"), HasSubstr("no/such/folder"));
  EXPECT_THAT(message(one + "--svg README.md"), HasSubstr("--svg: expected a folder"));
}

}  // namespace
}  // namespace odyssey
