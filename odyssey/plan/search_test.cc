// SPDX-License-Identifier: Apache-2.0
// The search, what-ifs and confidence.
#include "odyssey/plan/search.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "odyssey/plan/confidence.h"
#include "odyssey/plan/what_if.h"

namespace odyssey {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Words = std::vector<std::string>;

// llama3-8b on 64 TPU v5p, one sequence a step.
const Words kRun = {"hardware=tpu-v5p-64",
                    "model_name=llama3-8b",
                    "packing=false",
                    "per_device_batch_size=0.015625",
                    "max_target_length=65536",
                    "context_parallel_strategy=usp",
                    "ici_context_parallelism=16",
                    "ici_context_usp_ulysses_parallelism=4",
                    "context_parallel_load_balance=false"};

// `words` with some of them replaced, by their keys.
Words with(Words words, const Words& more) {
  for (const std::string& word : more) {
    const std::string key = word.substr(0, word.find('=') + 1);
    std::erase_if(words, [&](const std::string& other) { return other.starts_with(key); });
    words.push_back(word);
  }
  return words;
}

std::vector<PlanRow> rows_of(const Words& words) {
  CountCache cache;
  return search(make_job("", words), cache);
}

std::string name_of(const PlanRow& row) {
  return layout_name(row.parallel) + " " + std::string(name_of(row.parallel.placement)) + " " +
         std::to_string(row.parallel.data) + "x" + std::to_string(row.parallel.fsdp);
}

std::vector<std::string> names_of(const std::vector<PlanRow>& rows) {
  std::vector<std::string> names;
  for (const PlanRow& row : rows) names.push_back(name_of(row));
  return names;
}

TEST(Search, HasEveryLayoutOfOneSequence) {
  std::vector<std::string> expected;
  for (const char* layout : {"all_gather 64x1", "ring 64x1", "usp 32x2", "usp 16x4", "usp 8x8"}) {
    for (const char* placement : {"contiguous", "dual_chunk_swap", "striped"}) {
      expected.push_back(std::string(layout) + " " + placement + " 1x1");
    }
  }
  EXPECT_THAT(names_of(rows_of(kRun)), testing::UnorderedElementsAreArray(expected));
}

TEST(Search, RanksByTimeAndPutsWhatDoesNotFitLast) {
  // Gathering 512K tokens with partial sums of dq takes more than a chip has.
  const std::vector<PlanRow> rows = rows_of(with(kRun, {"max_target_length=524288"}));
  bool fits = true;
  double last = 0;
  for (const PlanRow& row : rows) {
    if (fits && !row.fits) last = 0;
    EXPECT_TRUE(fits || !row.fits);
    EXPECT_GE(row.step_seconds, last);
    last = row.step_seconds;
    fits = row.fits;
    EXPECT_EQ(row.fits, row.parallel.strategy != Strategy::kAllGather) << name_of(row);
  }
  EXPECT_FALSE(fits);
}

TEST(Search, MarksExactlyTheAskedRow) {
  for (const Words& change :
       {Words{}, Words{"context_parallel_load_balance=true"},
        Words{"ici_context_parallelism=64", "ici_context_usp_ulysses_parallelism=1"},
        // Not a layout of the systems on TPUs: the heads of a rank would not be whole.
        Words{"ici_context_parallelism=4", "ici_context_usp_ulysses_parallelism=16"}}) {
    const Job job = make_job("", with(kRun, change));
    CountCache cache;
    const std::vector<PlanRow> rows = search(job, cache);
    EXPECT_EQ(std::count_if(rows.begin(), rows.end(), [](const PlanRow& r) { return r.is_asked; }),
              1);
    const PlanRow& asked =
        *std::find_if(rows.begin(), rows.end(), [](const PlanRow& r) { return r.is_asked; });
    EXPECT_EQ(layout_name(asked.parallel), layout_name(job.config.run.parallel));
    // The price of the search is that of the layout alone.
    EXPECT_EQ(asked.step_seconds, estimate(job, count(job)).step_seconds());
    EXPECT_EQ(asked.memory.total(), plan_memory(job, count(job)).total());
  }
}

// Every row's flags, given to the planner, choose that row with that time: the cache mixes nothing.
TEST(Search, FlagsOfEveryRowGiveThatRow) {
  const Words batch =
      with(kRun, {"hardware=tpu-v5e-16", "per_device_batch_size=0.5", "ici_context_parallelism=4",
                  "max_target_length=8192", "gradient_accumulation_steps=2",
                  "ici_fsdp_parallelism=1", "ici_context_usp_ulysses_parallelism=4"});
  for (const Words& words : {kRun, batch}) {
    const std::vector<PlanRow> rows = rows_of(words);
    std::set<std::string> different;
    for (const PlanRow& row : rows) {
      EXPECT_TRUE(different.insert(name_of(row)).second) << name_of(row);
      const Job job = make_job("", with(words, words_of(row)));
      const Cost cost = estimate(job, count(job));
      EXPECT_EQ(cost.step_seconds(), row.step_seconds) << name_of(row);
      EXPECT_EQ(plan_memory(job, count(job)).total(), row.memory.total());
      EXPECT_EQ(job.config.run.parallel.placement, row.parallel.placement);
    }
  }
}

TEST(Search, SplitsABatchOverDataAndFsdp) {
  const std::vector<PlanRow> rows = rows_of(
      with(kRun, {"hardware=tpu-v5e-16", "per_device_batch_size=0.5", "ici_context_parallelism=4",
                  "max_target_length=8192", "ici_context_usp_ulysses_parallelism=4"}));
  const std::vector<std::string> names = names_of(rows);
  for (const char* name :
       {"usp 4x4 contiguous 1x1", "ring 2x1 striped 1x8", "ulysses 1x8 contiguous 2x1",
        "usp 4x2 dual_chunk_swap 2x1", "all_gather 4x1 contiguous 2x2"}) {
    EXPECT_THAT(names, testing::Contains(name));
  }
  // 8 rows are too few for 16 groups.
  for (const PlanRow& row : rows) {
    EXPECT_LE(row.parallel.data * row.parallel.fsdp, 8);
    EXPECT_EQ(row.batch_rows * row.accumulation, 8);
  }
}

// More micro-batches of the same step make room: the search finds how many.
TEST(Search, TuningFitsTheMemory) {
  const Words big =
      with(kRun, {"per_device_batch_size=1", "max_target_length=131072", "hardware.memory_gib=24"});
  const std::vector<PlanRow> rows = rows_of(big);
  const auto asked =
      std::find_if(rows.begin(), rows.end(), [](const PlanRow& r) { return r.is_asked; });
  EXPECT_FALSE(asked->fits);
  ASSERT_TRUE(asked->tuning.has_value());
  const Tuning& tuning = *asked->tuning;
  EXPECT_GT(tuning.accumulation, 1);
  EXPECT_LE(tuning.memory_bytes, 24.0 * (1 << 30));
  const auto price_of = [&](int64_t accumulation) {
    const Job job =
        make_job("", with(big, {"per_device_batch_size=" +
                                    std::to_string(1.0 / static_cast<double>(accumulation)),
                                "gradient_accumulation_steps=" + std::to_string(accumulation),
                                "remat_policy=" + tuning.remat_policy}));
    CountCache cache;
    return price(job, cache);
  };
  EXPECT_DOUBLE_EQ(price_of(tuning.accumulation).step_seconds, tuning.step_seconds);
  EXPECT_FALSE(price_of(tuning.accumulation / 2).fits);
}

TEST(Search, ComparesByItems) {
  const std::vector<PlanRow> rows = rows_of(kRun);
  const auto row = [&](const std::string& name) {
    return *std::find_if(rows.begin(), rows.end(),
                         [&](const PlanRow& r) { return name_of(r) == name; });
  };
  const std::string text = compare(row("usp 16x4 contiguous 1x1"), row("ring 64x1 contiguous 1x1"));
  EXPECT_THAT(text, HasSubstr("usp 16x4 contiguous takes 0.3"));
  EXPECT_THAT(text, HasSubstr("s less than ring 64x1 contiguous: ring merge -0."));
  EXPECT_THAT(text, Not(HasSubstr("linear")));
}

TEST(WhatIf, SingleChangesLargestFirst) {
  const Job job = make_job("", kRun);
  CountCache cache;
  const PlanRow asked = price(job, cache);
  const std::vector<WhatIf> changes = what_ifs("", kRun, job, asked);
  std::vector<std::string> words;
  double last = 1e9;
  for (const WhatIf& change : changes) {
    words.push_back(change.words);
    EXPECT_LE(change.ratio, last);
    last = change.ratio;
    EXPECT_NEAR(change.seconds, change.step_seconds - asked.step_seconds, 1e-12);
    EXPECT_GT(std::abs(change.seconds), 0);
  }
  for (const char* word :
       {"context_parallel_load_balance=true", "dq_reduction_steps=3", "sa_bwd_dkv_megacore=true",
        "remat_policy=minimal_with_context", "max_target_length=131072",
        "per_device_batch_size=0.03125", "hardware=tpu-v6e-64"}) {
    EXPECT_THAT(words, testing::Contains(word));
  }
  EXPECT_THAT(words, testing::Contains(HasSubstr("ici_context_usp_ulysses_parallelism=8")));
  // What the run has already is no change.
  EXPECT_THAT(words, Not(testing::Contains("remat_policy=full")));
}

TEST(WhatIf, OldSpellingsAndFieldsOfTheMachineAreReplaced) {
  Words words = kRun;
  std::erase_if(words, [](const std::string& w) { return w.find("ulysses_par") != w.npos; });
  words.insert(words.end(),
               {"ici_context_ulysses_parallelism=4", "hardware.link_gb_per_second=90"});
  const Job job = make_job("", words);
  CountCache cache;
  const std::vector<WhatIf> changes = what_ifs("", words, job, price(job, cache));
  std::vector<std::string> found;
  for (const WhatIf& change : changes) found.push_back(change.words);
  EXPECT_THAT(found, testing::Contains(HasSubstr("ici_context_usp_ulysses_parallelism=8")));
  // GPUs have no field of that name.
  EXPECT_THAT(found, testing::Contains("hardware=h100-64"));
}

TEST(Confidence, FallsWithTheDistanceFromWhatWasMeasured) {
  const auto level = [](const Words& change) {
    return trust(make_job("", with(kRun, change))).confidence;
  };
  EXPECT_EQ(level({}), Confidence::kInterpolated);
  EXPECT_EQ(level({"max_target_length=100000"}), Confidence::kInterpolated);
  EXPECT_EQ(level({"max_target_length=1048576"}), Confidence::kExtrapolated);
  EXPECT_EQ(level({"context_parallel_load_balance=true"}), Confidence::kExtrapolated);
  EXPECT_EQ(level({"hardware=tpu-v5p-512", "ici_context_parallelism=128",
                   "per_device_batch_size=0.001953125"}),
            Confidence::kExtrapolated);
  EXPECT_EQ(level({"hardware=tpu-v6e-64"}), Confidence::kScaled);
  EXPECT_EQ(level({"hardware=tpu-v5p-64", "hardware.tflops=500"}), Confidence::kScaled);
  EXPECT_EQ(level({"hardware=b200-8", "ici_context_parallelism=2", "per_device_batch_size=0.125"}),
            Confidence::kGuessed);
  const Trust gpu = trust(make_job("", with(kRun, {"hardware=h800-8", "ici_context_parallelism=2",
                                                   "per_device_batch_size=0.125"})));
  EXPECT_EQ(gpu.confidence, Confidence::kExtrapolated);
  EXPECT_THAT(gpu.reasons, testing::Contains(HasSubstr("collective_efficiency and fixed_seconds")));
}

TEST(Confidence, FilesTellWhatWasFitted) {
  const Job job = make_job("", with(kRun, {"max_target_length=131072"}));
  Cell first, second;
  first.job = make_job("", kRun);
  second.job = job;
  const std::vector<Sample> samples = {{&first, Measure::kStepSeconds},
                                       {&second, Measure::kStepSeconds}};
  std::vector<double> errors(calibration_fields().size(), 0.1);
  errors[1] = 0;
  Calibration calibration = job.calibration;
  calibration.fitted_on = fitted_on(samples, errors);
  const std::string text = calibration_text(calibration, {});
  EXPECT_THAT(text, HasSubstr("trims_hidden_blocks: false\ncells: 2\nmachines: [tpu-v5p-64]\n"
                              "shortest: 65536\nlongest: 131072\nplacements: [contiguous]\n"
                              "unmeasured: [collective_efficiency]\n"));
  // The files of the family tell the truth about their tables.
  EXPECT_EQ(load_calibration("tpu").fitted_on.cells, 15);
  EXPECT_EQ(load_calibration("cpu").fitted_on.cells, 0);
}

}  // namespace
}  // namespace odyssey
