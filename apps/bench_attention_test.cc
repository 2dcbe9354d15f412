// SPDX-License-Identifier: Apache-2.0
// `odyssey bench attention` on tiny shapes: which rows there are, and that what they count is what
// the schedule says.
#include <algorithm>
#include <set>

#include <fmt/core.h>

#include "apps/bench_attention_rows.h"
#include "apps/describe.h"
#include "apps/json_rows.h"
#include "apps/run_program.h"
#include "odyssey/io/test_folder.h"

namespace odyssey {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<std::string> kShape = {"base_num_query_heads=6", "base_num_kv_heads=2",
                                         "head_dim=16"};

std::string words_of_shape() {
  std::string words;
  for (const std::string& word : kShape) words += word + " ";
  return words;
}

std::vector<BenchAttentionRow> rows_of(const std::vector<std::string>& more,
                                       const BenchChoice& choice = {}, int ranks = 4,
                                       int64_t documents = 1) {
  BenchAttentionCommand command;
  command.key_values = kShape;
  command.key_values.insert(command.key_values.end(), more.begin(), more.end());
  command.ranks = {ranks};
  command.lengths = {67};
  command.choice = choice;
  command.documents = documents;
  return bench_attention_rows(command, 0);
}

std::vector<std::string> names_of(const std::vector<BenchLayout>& layouts) {
  std::vector<std::string> names;
  for (const BenchLayout& layout : layouts) {
    names.push_back(fmt::format("{} {}x{} {}", name_of(layout.strategy), layout.ring,
                                layout.ulysses, name_of(layout.placement)));
  }
  return names;
}

TEST(BenchLayouts, AreAllThatTheRanksCanHave) {
  EXPECT_THAT(names_of(bench_layouts(4, {}, MaskKind::kCausal)),
              testing::ElementsAre("all_gather 4x1 contiguous", "all_gather 4x1 dual_chunk_swap",
                                   "ring 4x1 contiguous", "ring 4x1 dual_chunk_swap",
                                   "ulysses 1x4 contiguous", "usp 2x2 contiguous",
                                   "usp 2x2 dual_chunk_swap"));
  EXPECT_THAT(names_of(bench_layouts(4, {}, MaskKind::kFull)),
              testing::ElementsAre("all_gather 4x1 contiguous", "ring 4x1 contiguous",
                                   "ulysses 1x4 contiguous", "usp 2x2 contiguous"));
  EXPECT_THAT(
      names_of(bench_layouts(12, {{Strategy::kUsp}, {PlacementKind::kStriped}}, MaskKind::kCausal)),
      testing::ElementsAre("usp 6x2 striped", "usp 4x3 striped", "usp 3x4 striped",
                           "usp 2x6 striped"));
  EXPECT_THAT(bench_layouts(7, {{Strategy::kUsp}, {PlacementKind::kStriped}}, MaskKind::kCausal),
              IsEmpty());
}

TEST(BenchLayouts, TheConfigurationIsTheLayout) {
  const BenchChoice all{
      {Strategy::kAllGather, Strategy::kRing, Strategy::kUlysses, Strategy::kUsp},
      {PlacementKind::kContiguous, PlacementKind::kDualChunkSwap, PlacementKind::kStriped}};
  for (const int ranks : {1, 3, 6, 64}) {
    for (const BenchLayout& layout : bench_layouts(ranks, all, MaskKind::kCausal)) {
      const ParallelConfig p = make_run_config("", words_of(layout), ranks).parallel;
      EXPECT_EQ(p.strategy, layout.strategy);
      EXPECT_EQ(p.ring_size, layout.ring);
      EXPECT_EQ(p.ulysses_size, layout.ulysses);
      EXPECT_EQ(p.placement, layout.placement);
    }
  }
}

TEST(BenchAttention, DocumentsAreMixedAndAllThere) {
  EXPECT_THAT(random_documents(67, 1), IsEmpty());
  for (const int64_t documents : {2, 20, 67}) {
    const std::vector<int32_t> ids = random_documents(67, documents);
    ASSERT_EQ(ids.size(), 67U);
    EXPECT_EQ(ids.front(), 1);
    EXPECT_EQ(ids.back(), documents);
    EXPECT_EQ(std::set<int32_t>(ids.begin(), ids.end()).size(), static_cast<size_t>(documents));
    EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
  }
}

// Pairs over all ranks do not depend on the layout, and are those of the mask.
TEST(BenchAttention, WorkIsCountedInVisiblePairs) {
  const BenchChoice all{
      {Strategy::kAllGather, Strategy::kRing, Strategy::kUlysses, Strategy::kUsp},
      {PlacementKind::kContiguous, PlacementKind::kDualChunkSwap, PlacementKind::kStriped}};
  for (const int64_t documents : {1, 9}) {
    for (const std::vector<std::string>& mask :
         {std::vector<std::string>{},
          {"attention_type=full"},
          {"attention_type=local_sliding", "sliding_window_size=10"},
          {"attention_type=chunk", "chunk_attn_window_size=10"}}) {
      const std::vector<BenchAttentionRow> rows = rows_of(mask, all, 4, documents);
      const ModelConfig& model = rows[0].config.model;
      const std::vector<int32_t> ids = random_documents(67, documents);
      double pairs = 0;
      for (int64_t q = 0; q < 67; ++q) {
        for (int64_t k = 0; k < 67; ++k) {
          if (ids.empty() || ids[q] == ids[k])
            pairs += visible(model.masks[0].kind, model.masks[0].window, q, k);
        }
      }
      for (const BenchAttentionRow& row : rows) {
        EXPECT_EQ(work_of(row).pairs_times_heads, 6 * pairs);
        EXPECT_GE(work_of(row).busiest_over_mean, 1);
      }
    }
  }
}

// Chunks of 17, 17, 17 and 16 of 67 tokens: the last rank sees 52 + ... + 67 = 952 of all 2278
// pairs.
TEST(BenchAttention, BalanceShowsInTheBusiestRank) {
  const auto busiest = [](PlacementKind placement) {
    return work_of(rows_of({}, {{Strategy::kRing}, {placement}})[1]).busiest_over_mean;
  };
  EXPECT_DOUBLE_EQ(busiest(PlacementKind::kContiguous), 952 / (2278 / 4.0));
  EXPECT_LT(busiest(PlacementKind::kDualChunkSwap), 1.1);
}

TEST(BenchAttention, PerDocumentIsCountedWhereItsTokensSit) {
  const BenchChoice choice{{Strategy::kRing},
                           {PlacementKind::kContiguous, PlacementKind::kPerDocument}};
  const std::vector<BenchAttentionRow> rows = rows_of({}, choice, 4, 5);
  const BenchAttentionWork contiguous = work_of(rows[1]), per_document = work_of(rows[2]);
  EXPECT_EQ(per_document.pairs_times_heads, contiguous.pairs_times_heads);
  EXPECT_LT(per_document.busiest_over_mean, 1.15);
  EXPECT_GT(contiguous.busiest_over_mean, 1.2);
}

SentBytes bytes_of_schedule(const BenchAttentionRow& row) {
  const AttentionLayout layout = row.layout();
  SentBytes all;
  for (int r = 0; r < layout.ring_size(); ++r) {
    for (int u = 0; u < layout.ulysses_size(); ++u) {
      all.needed += sent_bytes(layout, r, u).needed;
      all.untrimmed += sent_bytes(layout, r, u).untrimmed;
    }
  }
  return all;
}

void expect_sound(const Row& row, const BenchAttentionRow& expected) {
  SCOPED_TRACE(row.line());
  const int ranks = expected.ranks();
  EXPECT_EQ(row.number("ranks"), ranks);
  EXPECT_EQ(row.number("threads"), 1);
  EXPECT_EQ(row.text("engine"), "threads");
  EXPECT_EQ(row.number("ring"), expected.config.parallel.ring_size);
  EXPECT_EQ(row.number("ulysses"), expected.config.parallel.ulysses_size);
  EXPECT_EQ(row.text("placement"), name_of(expected.config.parallel.placement));
  EXPECT_EQ(row.number("length"), 67);
  EXPECT_EQ(row.number("heads"), 6);
  EXPECT_EQ(row.number("kv_heads"), 2);
  EXPECT_EQ(row.number("head_dim"), 16);
  EXPECT_EQ(row.number("runs"), 2);
  EXPECT_GT(row.number("min_seconds"), 0);
  EXPECT_LE(row.number("min_seconds"), row.number("median_seconds"));
  EXPECT_LE(row.number("median_seconds"), row.number("max_seconds"));
  for (const char* key :
       {"cpu_seconds_busiest", "cpu_seconds_mean", "forward_cpu_seconds", "backward_cpu_seconds",
        "cpu_overhead", "tflops", "live_peak_tflops", "share_of_peak"}) {
    EXPECT_GT(row.number(key), 0) << key;
  }
  EXPECT_GE(row.number("work_imbalance"), 1);
  EXPECT_EQ(row.number("bytes_sent_mean") * ranks, bytes_of_schedule(expected).needed);
  EXPECT_EQ((row.number("bytes_sent_mean") + row.number("bytes_saved_mean")) * ranks,
            bytes_of_schedule(expected).untrimmed);
  EXPECT_GE(row.number("bytes_sent_most"), row.number("bytes_sent_mean"));
  EXPECT_EQ(row.number("bytes_sent_mean") > 0, ranks > 1);
  EXPECT_EQ(row.number("waiting_seconds_mean") > 0, ranks > 1);
}

// The rows but the dense ones with several threads, of which a machine may have none.
std::vector<Row> rows_with_one_thread(const std::string& path) {
  std::vector<Row> rows = read_rows(path);
  std::erase_if(rows, [](const Row& row) {
    if (row.number("threads") == 1) return false;
    EXPECT_EQ(row.text("strategy"), "dense");
    EXPECT_FALSE(row.has("cpu_overhead")) << row.line();
    EXPECT_EQ(row.number("wall_overhead"), 1);
    return true;
  });
  return rows;
}

TEST(BenchAttention, RowsCountWhatTheScheduleSays) {
  const TestFolder folder;
  const std::string path = folder.path("rows.jsonl");
  for (const std::string mask : {"",
                                 "dtype=float32 attention_type=local_sliding "
                                 "sliding_window_size=10"}) {
    const ProgramResult result = run_program("bench attention " + words_of_shape() + mask +
                                             " --lengths 67 --ranks 4 --repeats 2 --json " + path);
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, IsEmpty());
    EXPECT_THAT(result.out, HasSubstr("busiest"));
    const std::vector<Row> rows = rows_with_one_thread(path);
    std::vector<std::string> words;
    if (!mask.empty()) {
      words = {"dtype=float32", "attention_type=local_sliding", "sliding_window_size=10"};
    }
    const std::vector<BenchAttentionRow> expected = rows_of(words);
    ASSERT_EQ(rows.size(), expected.size());
    EXPECT_EQ(rows.size(), 8U);
    for (size_t i = 0; i < rows.size(); ++i) expect_sound(rows[i], expected[i]);
    EXPECT_EQ(rows[0].text("strategy"), "dense");
    EXPECT_EQ(rows[0].number("cpu_overhead"), 1);
    EXPECT_EQ(rows[7].text("strategy"), "usp");
  }
}

TEST(BenchAttention, DocumentsAndSeveralLengthsAndRanks) {
  const TestFolder folder;
  const std::string path = folder.path("rows.jsonl");
  const ProgramResult result =
      run_program("bench attention " + words_of_shape() +
                  "--lengths 67,30 --ranks 1,2 --strategies ring --placements striped --documents "
                  "5 --repeats 1 --json " +
                  path);
  ASSERT_EQ(result.code, 0) << result.err;
  const std::vector<Row> rows = rows_with_one_thread(path);
  ASSERT_EQ(rows.size(), 4U);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].number("length"), i < 2 ? 67 : 30);
    EXPECT_EQ(rows[i].number("documents"), 5);
    EXPECT_EQ(rows[i].text("strategy"), i % 2 == 0 ? "dense" : "ring");
  }
}

TEST(BenchAttention, OneRankAloneIsTheDenseRow) {
  const ProgramResult result =
      run_program("bench attention " + words_of_shape() + "--lengths 5 --ranks 1 --repeats 1");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("dense"));
}

TEST(BenchAttention, AFullDiskIsNoSuccess) {
  const ProgramResult result =
      run_program("bench attention " + words_of_shape() +
                  "--lengths 5 --ranks 2 --strategies ring --repeats 1 --json /dev/full");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("cannot write /dev/full: No space left on device"));
}

}  // namespace
}  // namespace odyssey
