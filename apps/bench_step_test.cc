// SPDX-License-Identifier: Apache-2.0
// `odyssey bench step` on a tiny model: the rows and columns of the table, and its JSON.
#include <string>
#include <vector>

#include "apps/json_rows.h"
#include "apps/run_program.h"
#include "odyssey/io/test_folder.h"

namespace odyssey {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

const std::string kBench = "bench step configs/tiny.yml dataset_type=synthetic ";

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

void expect_sound(const Row& row, int ranks, int steps) {
  SCOPED_TRACE(row.line());
  EXPECT_EQ(row.number("ring") * row.number("ulysses"), ranks);
  EXPECT_EQ(row.number("ranks"), ranks);
  EXPECT_EQ(row.number("rows"), 1);
  EXPECT_EQ(row.number("steps"), steps);
  EXPECT_EQ(row.text("load_balance"), row.text("reorder") == "contiguous" ? "false" : "true");
  EXPECT_EQ(row.text("dtype"), "float32");
  EXPECT_EQ(row.text("mask"), "causal");
  EXPECT_GT(row.number("min_step_seconds"), 0);
  EXPECT_LE(row.number("min_step_seconds"), row.number("median_step_seconds"));
  EXPECT_LE(row.number("median_step_seconds"), row.number("max_step_seconds"));
  EXPECT_NEAR(row.number("tokens_per_second") * row.number("median_step_seconds"),
              row.number("length"), 1e-6 * row.number("length"));
}

TEST(BenchStep, EveryLayoutAtEveryLength) {
  const TestFolder folder;
  const std::string path = folder.path("rows.jsonl");
  const ProgramResult result =
      run_program(kBench + "--ranks 4 --lengths 32,65 --steps 2 --repeats 2 --json " + path);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_THAT(result.out,
              HasSubstr("\n| strategy | placement | S 32 | S 65 |\n|---|---|---:|---:|\n"
                        "| all_gather | contiguous | "));
  EXPECT_THAT(result.out, HasSubstr("\n| usp 2x2 | dual_chunk_swap | "));
  EXPECT_EQ(count(result.out, "\n| "), 8);
  const std::vector<Row> rows = read_rows(path);
  ASSERT_EQ(rows.size(), 14U);
  for (size_t i = 0; i < rows.size(); ++i) {
    expect_sound(rows[i], 4, 4);
    EXPECT_EQ(rows[i].number("length"), i % 2 == 0 ? 32 : 65);
  }
  EXPECT_EQ(rows[0].text("strategy"), "all_gather");
  EXPECT_EQ(rows[13].text("strategy"), "usp");
}

TEST(BenchStep, LengthComesFromTheConfiguration) {
  const TestFolder folder;
  const std::string path = folder.path("rows.jsonl");
  const std::string yml = folder.write(
      "one.yml",
      "max_target_length: 24\nper_device_batch_size: 3.0\nbase_emb_dim: 16\n"
      "base_num_query_heads: 2\nbase_num_kv_heads: 1\nhead_dim: 8\nbase_mlp_dim: 24\n"
      "base_num_decoder_layers: 1\nvocab_size: 32\ndtype: float32\ndataset_type: synthetic\n");
  const ProgramResult result =
      run_program("bench step " + yml + " --ranks 3 --strategies ulysses --steps 1 --json " + path);
  ASSERT_EQ(result.code, 0) << result.err;
  const std::vector<Row> rows = read_rows(path);
  ASSERT_EQ(rows.size(), 1U);
  expect_sound(rows[0], 3, 1);
  EXPECT_EQ(rows[0].number("length"), 24);
}

}  // namespace
}  // namespace odyssey
