// SPDX-License-Identifier: Apache-2.0
// `odyssey calibrate` and `odyssey bench plan` as users run them: small and rough, no time is
// judged; their arithmetic on times that are given.
#include <atomic>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/calibrate_calls.h"
#include "apps/json_rows.h"
#include "apps/plan_check.h"
#include "apps/probe_clock.h"
#include "apps/run_program.h"
#include "odyssey/comm/mpi_group.h"
#include "odyssey/comm/thread_group.h"
#include "odyssey/io/test_folder.h"
#include "odyssey/kernels/isa.h"
#include "odyssey/plan/hardware.h"
#include "odyssey/plan/rank_script.h"
#include "odyssey/plan/tile_pairs.h"

namespace odyssey {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

const std::string kSmall = "base_num_query_heads=2 base_num_kv_heads=1 head_dim=32 ";

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(BlockRates, AreFoundAgainFromWhatTheyCost) {
  const AttentionShape shape;
  const std::vector<BlockShape> blocks = block_shapes(shape, false);
  const BlockRates rates{5e-10, 1e-7, 3e-7, 2e-6};
  std::vector<double> seconds;
  for (const BlockShape& block : blocks) {
    const odyssey::Run q{block.causal ? 0 : block.keys, block.queries, 1}, k{0, block.keys, 1};
    const int64_t pairs = visible_tile_pairs(
        {&q, 1}, {&k, 1}, block.causal ? MaskKind::kCausal : MaskKind::kFull, 0, 32);
    seconds.push_back(rates.seconds(static_cast<double>(block.query_heads),
                                    static_cast<double>(block.kv_heads), static_cast<double>(pairs),
                                    static_cast<double>(block.queries),
                                    static_cast<double>(block.keys)));
  }
  FitQuality quality;
  const BlockRates found = fit_block_rates(blocks, 32, seconds, quality);
  EXPECT_NEAR(found.pair / rates.pair, 1, 0.001);
  EXPECT_NEAR(found.query_row / rates.query_row, 1, 0.01);
  EXPECT_NEAR(found.key_row / rates.key_row, 1, 0.01);
  EXPECT_LT(quality.largest_error, 0.001);
}

TEST(ProbeClock, TimesAllProbesOnAllRanks) {
  std::atomic<int> calls = 0;
  const std::vector<Probe> probes = {{[&] { ++calls; }}, {[] {}, Clock::kWall, 1}};
  ProbeOptions options;
  options.peak = fp32_peak(isa_in_use());
  options.most_seconds = 0;
  options.call_seconds = 1e-5;
  options.reference_peak = 1;
  std::vector<ProbeTimes> times(3);
  run_on_threads(3, [&](Group& group) {
    times[static_cast<size_t>(group.rank())] = time_probes(group, probes, options);
  });
  for (const ProbeTimes& one : times) {
    EXPECT_EQ(one.rounds, options.least_rounds);
    EXPECT_EQ(one.reference_peak, 1);
    ASSERT_EQ(one.seconds.size(), 2U);
    EXPECT_GT(one.seconds[0].least, 0);
    EXPECT_EQ(one.seconds[1].median, times[0].seconds[1].median);
    EXPECT_LE(one.peak.least, one.peak.most);
  }
  EXPECT_GE(calls, 3 * (2 + options.least_rounds));
}

TEST(ProbeClock, HoldsTheShareOfProductsToThePeak) {
  // At half the peak products take twice as long, and the rest as long as ever.
  EXPECT_DOUBLE_EQ(at_reference({{2, 0.5, 0.5}}, 1, 1).median, 1);
  EXPECT_DOUBLE_EQ(at_reference({{1, 0.5, 0.5}}, 0, 1).median, 1);
  EXPECT_DOUBLE_EQ(at_reference({{2 * 0.75 + 0.25, 0.5, 0.5}}, 0.75, 1).median, 1);
}

TEST(ProbeClock, PassesOverTimesInWhichTheMachineChanged) {
  const ProbeSample steady{1, 2, 2}, changed{9, 1, 2};
  EXPECT_DOUBLE_EQ(at_reference({steady, steady, steady, changed}, 1, 2).most, 1);
  // Unless nothing else is left.
  EXPECT_DOUBLE_EQ(at_reference({steady, changed, changed}, 0, 2).median, 9);
}

TEST(CallFactors, AreFoundAgain) {
  const AttentionShape shape;
  const std::vector<BenchAttentionRow> rows = calibration_rows(shape, 4, false, 0);
  ASSERT_EQ(rows.size(), 6U);
  CpuRates rates;
  rates.forward = rates.backward = {1e-9, 1e-7, 1e-7, 0};
  rates.pass_byte = 1e-10;
  rates.shift = {1e-6, 1e-10};
  rates.exchange = {1e-6, 4e-10};
  CpuRates slower = rates;
  apply({1.1, 2, 1.5, {}}, slower);
  std::vector<double> seconds;
  for (const BenchAttentionRow& row : rows) {
    const AttentionLayout layout = row.layout();
    const HostMap hosts{layout.ring_size(), layout.ulysses_size(), 1, 1, 4};
    double all = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const RankScript script =
          attention_script(slower, layout, hosts, rank / layout.ulysses_size(),
                           rank % layout.ulysses_size(), 1, true);
      all += script.attention + script.exchanges + script.transfers + script.copies;
    }
    seconds.push_back(all / 4);
  }
  const CallFactors found = fit_calls(rows, rates, 4, seconds);
  // What is little of a call stays near 1.
  EXPECT_NEAR(found.attention, 1.1, 0.05);
  EXPECT_NEAR(found.exchanges, 2, 0.5);
  EXPECT_NEAR(found.rest, 1.3, 0.3);
  EXPECT_LT(found.quality.largest_error, 0.05);
}

// Predictions 1, 2, 3 against 1.02, 3, 2.5: errors 2 %, 33 %, 20 %.
TEST(PlanCheck, CountsErrorsAndOrder) {
  std::vector<PlanCheck> rows(3);
  const double predicted[] = {1, 2, 3}, measured[] = {1.02, 3, 2.5};
  for (size_t i = 0; i < 3; ++i) {
    rows[i].length = 256;
    rows[i].predicted = predicted[i];
    rows[i].seconds = {measured[i], 0.99 * measured[i], 1.01 * measured[i]};
  }
  const Agreement all = agreement_of(rows);
  EXPECT_NEAR(all.mean_error, (1 - 1 / 1.02 + 1.0 / 3 + 0.2) / 3, 1e-12);
  EXPECT_NEAR(all.largest_error, 1.0 / 3, 1e-12);
  EXPECT_EQ(all.layouts.pairs, 3);
  EXPECT_EQ(all.layouts.ordered, 2);
  rows[2].length = 512;
  EXPECT_EQ(agreement_of(rows).all.pairs, 3);
  EXPECT_EQ(agreement_of(rows).layouts.pairs, 1);
  EXPECT_THAT(plan_check_text(rows), HasSubstr("at all: 2 of 3 (67 %); of layouts at one length "
                                               "and number of ranks: 1 of 1 (100 %)"));
  rows[2].seconds.least = 1;  // one of its runs was as fast as the others
  EXPECT_EQ(agreement_of(rows).all.pairs, 2);
}

// Writes a file that plan takes, whatever the kernels of this machine are.
void expect_whole_file(const std::string& path, const std::string& before,
                       const std::string& done) {
  const ProgramResult made =
      run_program("calibrate --quick --output " + path + " --ranks 2 " + kSmall, before);
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out, StartsWith(done + " " + path));
  EXPECT_THAT(made.err, HasSubstr("live peak"));
  EXPECT_THAT(text_of(path), HasSubstr("by odyssey calibrate"));
  const Hardware hardware = load_hardware(path);
  ASSERT_TRUE(hardware.rates.has_value());
  EXPECT_GE(hardware.cores_in_all, 1);
  EXPECT_GT(hardware.rates->forward.pair, 0);
  EXPECT_GT(hardware.rates->backward.pair, hardware.rates->forward.pair);
  EXPECT_GT(hardware.rates->linear_flop, 0);
  EXPECT_GT(hardware.rates->shift.byte + hardware.rates->shift.message, 0);
  EXPECT_GT(hardware.rates->exchange.byte, 0);
}

TEST(Calibrate, WritesAMachineThatPlanAndBenchTake) {
  const TestFolder folder;
  const std::string path = folder.path("here.yml");
  folder.write("here.yml", "an older file");
  expect_whole_file(path, "", "replaced");
  const ProgramResult plan = run_program("plan configs/tiny.yml dtype=bfloat16 hardware=" + path);
  EXPECT_EQ(plan.code, 0) << plan.err;
  for (const char* item :
       {"attention", "linear", "waiting", "optimizer", "measured by odyssey calibrate"}) {
    EXPECT_THAT(plan.out, HasSubstr(item));
  }
  const std::string json = folder.path("rows.jsonl");
  const ProgramResult bench = run_program(
      "bench plan " + path + " --lengths 256 --ranks 2 --repeats 1 --json " + json + " " + kSmall);
  EXPECT_EQ(bench.code, 0) << bench.err;
  EXPECT_THAT(bench.out, HasSubstr("5 rows: mean error"));
  const std::vector<Row> rows = read_rows(json);
  ASSERT_EQ(rows.size(), 5U);  // ring and all_gather twice; ulysses
  for (const Row& row : rows) {
    EXPECT_GT(row.number("predicted_seconds"), 0) << row.line();
    EXPECT_GT(row.number("measured_seconds"), 0) << row.line();
  }
}

TEST(Calibrate, MeasuresProcesses) {
  if (!mpi_available()) GTEST_SKIP() << "no MPI";
  const TestFolder folder;
  expect_whole_file(folder.path("cluster.yml"), mpirun(2), "wrote");
}

void expect_user_error(const std::string& arguments, const std::string& message) {
  SCOPED_TRACE(arguments);
  const ProgramResult result = run_program(arguments);
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, StartsWith("odyssey: error: "));
  EXPECT_THAT(result.err, HasSubstr(message));
  EXPECT_THAT(result.out, IsEmpty());
}

TEST(Calibrate, RefusesBeforeItMeasures) {
  expect_user_error("calibrate --output no-such-folder/x.yml", "no-such-folder");
  expect_user_error("calibrate --ranks 0", "--ranks: expected a whole number of at least 1");
  expect_user_error("calibrate --ranks 100000", "--ranks: expected at most 1024");
  expect_user_error("calibrate head_dims=64", "Did you mean head_dim?");
  expect_user_error("calibrate configs/tiny.yml", "key=value words only");
  expect_user_error("calibrate --fit", "--output, --quick, --ranks, --comm or --help");
  expect_user_error("bench plan", "FILE.yml before the key=value words");
  expect_user_error("bench plan no-such-file.yml", "no-such-file.yml");
  expect_user_error("bench plan this-machine.yml", "this-machine.yml");
  expect_user_error("bench plan configs/hardware/this-machine.yml",
                    "a file that odyssey calibrate wrote");
}

}  // namespace
}  // namespace odyssey
