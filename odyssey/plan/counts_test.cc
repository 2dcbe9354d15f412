// SPDX-License-Identifier: Apache-2.0
// Transfers: by formula where every block goes everywhere, and by the trainer's schedules.
#include "odyssey/plan/counts.h"

#include <algorithm>

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

// A full mask hides nothing, so whatever the trainer leaves out, it leaves out nothing there.
TEST(Counts, FullTransfersAreTheScheduleOfAFullMask) {
  for (const Words& change :
       {Words{"ici_context_parallelism=16", "ici_context_usp_ulysses_parallelism=4"},
        Words{"ici_context_parallelism=4", "ici_context_usp_ulysses_parallelism=16",
              "max_target_length=1000"},
        Words{"context_parallel_strategy=ring", "ici_context_parallelism=64",
              "ici_context_usp_ulysses_parallelism=1", "max_target_length=1001"},
        Words{"context_parallel_strategy=ulysses", "ici_context_parallelism=64",
              "ici_context_usp_ulysses_parallelism=1"},
        Words{"context_parallel_strategy=all_gather", "ici_context_parallelism=64",
              "ici_context_usp_ulysses_parallelism=1", "max_target_length=1024"}}) {
    const Job job = make_job("", with(kRun, change));
    const AttentionLayout layout = layout_of(job, MaskKind::kFull);
    TransferCounts most;
    const auto take = [](int64_t& value, int64_t bytes) { value = std::max(value, bytes / 4); };
    for (int r = 0; r < layout.ring_size(); ++r) {
      for (int u = 0; u < layout.ulysses_size(); ++u) {
        int64_t hops = 0, gradient_hops = 0, gathered = 0, reduced = 0;
        for (const Step& step : forward_schedule(layout, r, u)) {
          if (step.kind == StepKind::kExchangeIn) take(most.exchange_in, step.bytes_sent);
          if (step.kind == StepKind::kExchangeOut) take(most.exchange_out, step.bytes_sent);
          if (step.kind == StepKind::kGather) gathered += step.bytes_sent;
          if (step.kind == StepKind::kShift) take(most.hop, step.bytes_sent);
          hops += step.kind == StepKind::kShift;
        }
        for (const Step& step : backward_schedule(layout, r, u)) {
          if (step.kind == StepKind::kExchangeIn) take(most.exchange_gradient_in, step.bytes_sent);
          if (step.kind == StepKind::kExchangeOut) {
            take(most.exchange_gradient_out, step.bytes_sent);
          }
          if (step.kind != StepKind::kShiftGradient) continue;
          if (layout.outer_gather) {
            reduced += step.bytes_sent;
          } else {
            take(most.gradient_hop, step.bytes_sent);
            ++gradient_hops;
          }
        }
        take(most.gather, gathered);
        take(most.reduce, reduced);
        most.hops = std::max(most.hops, hops);
        // The trainer sends dK and dV straight home; where they pass round with their block, the
        // way home is one hop more.
        const int64_t passed_on = gradient_hops > 0 ? gradient_hops + 1 : 0;
        most.gradient_hops = std::max(most.gradient_hops, passed_on);
      }
    }
    const TransferCounts& t = count(job).transfers;
    EXPECT_EQ(t.exchange_in, most.exchange_in);
    EXPECT_EQ(t.exchange_out, most.exchange_out);
    EXPECT_EQ(t.exchange_gradient_in, most.exchange_gradient_in);
    EXPECT_EQ(t.exchange_gradient_out, most.exchange_gradient_out);
    EXPECT_EQ(t.gather, most.gather);
    EXPECT_EQ(t.reduce, most.reduce);
    EXPECT_EQ(t.hop, most.hop);
    EXPECT_EQ(t.hops, most.hops);
    EXPECT_EQ(t.gradient_hop, most.gradient_hop);
    EXPECT_EQ(t.gradient_hops, most.gradient_hops);
  }
}

// What the lists of the trainer send in all, of the rank that sends most, under the run's own mask.
int64_t most_scheduled(const Job& job, bool backward) {
  const AttentionLayout layout = layout_of(job, job.config.run.model.mask);
  int64_t most = 0;
  for (int r = 0; r < layout.ring_size(); ++r) {
    most = std::max(most, bytes_sent(backward ? backward_schedule(layout, r, 0)
                                              : forward_schedule(layout, r, 0)));
  }
  return most / 4;
}

// A family that trims pays for what the schedules send, one that does not for every hop.
TEST(Counts, OnlyFamiliesThatTrimFollowTheSchedule) {
  EXPECT_TRUE(load_calibration("cpu").trims_hidden_blocks);
  for (const char* family : {"tpu", "hopper", "ampere", "blackwell"}) {
    EXPECT_FALSE(load_calibration(family).trims_hidden_blocks) << family;
  }
  for (const char* strategy : {"ring", "all_gather"}) {
    Job job = make_job(
        "", with(kRun, {std::string("context_parallel_strategy=") + strategy,
                        "ici_context_parallelism=64", "ici_context_usp_ulysses_parallelism=1"}));
    const TransferCounts full = count(job).transfers;
    job.calibration.trims_hidden_blocks = true;
    const TransferCounts t = count(job).transfers;
    EXPECT_EQ(t.gather + t.hop * t.hops, most_scheduled(job, false));
    EXPECT_EQ(
        t.reduce + (t.gradient_hops > 0 ? t.hop * t.hops : 0) + t.gradient_hop * t.gradient_hops,
        most_scheduled(job, true));
    // A full mask hides nothing: both are the same.
    job.config.run.model.mask = MaskKind::kFull;
    const TransferCounts all = count(job).transfers;
    EXPECT_EQ(all.gather, full.gather);
    EXPECT_EQ(all.reduce, full.reduce);
    EXPECT_EQ(all.hop * all.hops, full.hop * full.hops);
    EXPECT_EQ(all.gradient_hop * all.gradient_hops, full.gradient_hop * full.gradient_hops);
  }
}

}  // namespace
}  // namespace odyssey
