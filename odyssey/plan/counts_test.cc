// SPDX-License-Identifier: Apache-2.0
// Transfers: by formula where every block goes everywhere, and by the trainer's schedules.
#include "odyssey/plan/counts.h"

#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include "odyssey/schedule/step.h"

namespace odyssey {
namespace {

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

constexpr std::array kFields = {&TransferCounts::exchange_in,
                                &TransferCounts::exchange_out,
                                &TransferCounts::exchange_gradient_in,
                                &TransferCounts::exchange_gradient_out,
                                &TransferCounts::hop,
                                &TransferCounts::hops,
                                &TransferCounts::gradient_hop,
                                &TransferCounts::gradient_hops,
                                &TransferCounts::gather,
                                &TransferCounts::reduce};

AttentionLayout layout_of(const Job& job, MaskKind mask) {
  const RunConfig& run = job.config.run;
  const ParallelConfig& p = run.parallel;
  return {Placement(p.placement, run.data.sequence_length, p.ring_size, p.ulysses_size),
          HeadMap(run.model.query_heads, run.model.kv_heads, p.ulysses_size),
          p.outer_gather,
          run.data.global_batch_rows / (p.data * p.fsdp),
          run.model.head_size,
          4,
          mask,
          0};
}

// Of the lists of every rank: for each field that of the rank with most.
TransferCounts most_of_schedules(const AttentionLayout& layout) {
  TransferCounts most;
  const auto take = [](int64_t& value, int64_t other) { value = std::max(value, other); };
  for (int r = 0; r < layout.ring_size(); ++r) {
    for (int u = 0; u < layout.ulysses_size(); ++u) {
      TransferCounts mine;
      for (const Step& step : forward_schedule(layout, r, u)) {
        const int64_t elements = step.bytes_sent / 4;
        if (step.kind == StepKind::kExchangeIn) mine.exchange_in += elements;
        if (step.kind == StepKind::kExchangeOut) mine.exchange_out += elements;
        if (step.kind == StepKind::kGather) mine.gather += elements;
        if (step.kind == StepKind::kShift) take(mine.hop, elements);
        mine.hops += step.kind == StepKind::kShift;
      }
      for (const Step& step : backward_schedule(layout, r, u)) {
        const int64_t elements = step.bytes_sent / 4;
        if (step.kind == StepKind::kExchangeIn) mine.exchange_gradient_in += elements;
        if (step.kind == StepKind::kExchangeOut) mine.exchange_gradient_out += elements;
        if (step.kind != StepKind::kShiftGradient) continue;
        if (layout.outer_gather) {
          mine.reduce += elements;
        } else {
          take(mine.gradient_hop, elements);
          ++mine.gradient_hops;
        }
      }
      for (int64_t TransferCounts::*field : kFields) take(most.*field, mine.*field);
    }
  }
  return most;
}

void expect_equal(const TransferCounts& actual, const TransferCounts& expected,
                  const std::string& what) {
  for (size_t f = 0; f < kFields.size(); ++f) {
    EXPECT_EQ(actual.*kFields[f], expected.*kFields[f]) << what << ", field " << f;
  }
}

const std::vector<Words> kLayouts = {
    {"ici_context_parallelism=16", "ici_context_usp_ulysses_parallelism=4"},
    {"ici_context_parallelism=4", "ici_context_usp_ulysses_parallelism=16",
     "max_target_length=1000"},
    {"context_parallel_strategy=ring", "ici_context_parallelism=64",
     "ici_context_usp_ulysses_parallelism=1", "max_target_length=1001"},
    {"context_parallel_strategy=ulysses", "ici_context_parallelism=64",
     "ici_context_usp_ulysses_parallelism=1"},
    {"context_parallel_strategy=all_gather", "ici_context_parallelism=64",
     "ici_context_usp_ulysses_parallelism=1", "max_target_length=1024"}};

// A full mask hides nothing, so whatever the trainer leaves out, it leaves out nothing there.
TEST(Counts, FullTransfersAreTheScheduleOfAFullMask) {
  for (const Words& words : kLayouts) {
    const Job job = make_job("", with(kRun, words));
    EXPECT_FALSE(job.calibration.trims_hidden_blocks);
    TransferCounts expected = most_of_schedules(layout_of(job, MaskKind::kFull));
    // The trainer sends dK and dV straight home; where they pass round with their block, the way
    // home is one hop more.
    if (expected.gradient_hops > 0) ++expected.gradient_hops;
    expect_equal(count(job).masks[0].transfers, expected, words[0]);
  }
}

// A family that trims pays for what the schedules send under the run's own mask.
TEST(Counts, FamiliesThatTrimFollowTheSchedule) {
  EXPECT_TRUE(load_calibration("cpu").trims_hidden_blocks);
  for (const char* family : {"tpu", "hopper", "ampere", "blackwell"}) {
    EXPECT_FALSE(load_calibration(family).trims_hidden_blocks) << family;
  }
  for (const Words& words : kLayouts) {
    Job job = make_job("", with(kRun, words));
    job.calibration.trims_hidden_blocks = true;
    expect_equal(count(job).masks[0].transfers,
                 most_of_schedules(layout_of(job, MaskKind::kCausal)), words[0]);
  }
}

}  // namespace
}  // namespace odyssey
