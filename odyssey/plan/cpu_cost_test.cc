// SPDX-License-Identifier: Apache-2.0
// Steps on CPUs that were measured.
#include "odyssey/plan/cpu_cost.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "odyssey/base/error.h"
#include "odyssey/plan/memory.h"
#include "odyssey/plan/tile_pairs.h"

namespace odyssey {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

// A machine of two cores with round rates.
class MeasuredMachine : public testing::Test {
 protected:
  MeasuredMachine()
      : path_(std::filesystem::temp_directory_path() /
              ("measured-" + std::to_string(getpid()) + ".yml")) {
    write("");
  }
  ~MeasuredMachine() override { std::filesystem::remove(path_); }

  static CpuRates rates() {
    CpuRates rates;
    rates.forward = {1e-10, 1e-8, 2e-8, 1e-6};
    rates.backward = {3e-10, 2e-8, 4e-8, 2e-6};
    rates.linear_flop = 1e-12;
    rates.linear_weight = 1e-10;
    rates.pass_byte = 1e-10;
    rates.norm_element = rates.rope_element = 2e-9;
    rates.activation_element = rates.logit_element = 3e-9;
    rates.parameter = 4e-9;
    rates.shift = {2e-6, 2e-10};
    rates.exchange = {3e-6, 5e-10};
    rates.gather = {4e-6, 3e-10};
    rates.network = {1e-4, 1e-9};
    rates.live_peak_tflops = 1;
    return rates;
  }
  void write(const std::string& more, const std::string& without = "") const {
    std::string text =
        "kind: cpu\ncalibration: cpu\nchips: 2\ntflops: 1\nfp8_tflops: 0\nfp32_tflops: 0.1\n"
        "cores: 1\nmemory_gib: 8\nmemory_gb_per_second: 10\nchips_per_node: 2\n"
        "node_gb_per_second: 5\nnetwork_gb_per_second: 5\n" +
        cpu_rates_text(rates(), "test") + more;
    if (!without.empty()) {
      const size_t at = text.find(without);
      text.erase(at, text.find('\n', at) + 1 - at);
    }
    std::ofstream(path_) << text;
  }
  Job job(Words more) const {
    Words words = {"hardware=" + path_.string(), "base_num_query_heads=8",
                   "base_num_kv_heads=2",        "head_dim=128",
                   "base_num_decoder_layers=1",  "packing=false"};
    words.insert(words.end(), more.begin(), more.end());
    return make_job("", words);
  }
  static Words layout(const std::string& strategy, int ring, int ulysses, bool balance,
                      int64_t length = 2048) {
    return {"context_parallel_strategy=" + strategy,
            "ici_context_parallelism=" + std::to_string(ring),
            "ici_context_usp_ulysses_parallelism=" + std::to_string(ulysses),
            "per_device_batch_size=" + std::to_string(1.0 / (ring * ulysses)),
            "max_target_length=" + std::to_string(length),
            std::string("context_parallel_load_balance=") + (balance ? "true" : "false")};
  }
  Cost price(const Words& words, Scope scope = Scope::kAttention) const {
    const Job one = job(words);
    return estimate(one, count(one), scope);
  }
  std::string message(const Words& words) const {
    try {
      price(words);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }

  std::filesystem::path path_;
};

TEST_F(MeasuredMachine, FileHoldsWhatWasWritten) {
  const Job one = job(layout("ring", 4, 1, false));
  ASSERT_TRUE(one.hardware.rates.has_value());
  CpuRates read = *one.hardware.rates, written = rates();
  for (const CpuRateField& field : cpu_rate_fields()) {
    EXPECT_DOUBLE_EQ(field.of(read), field.of(written)) << field.name;
  }
  EXPECT_EQ(read.cores_per_host, 2);
  write("", "backward_call_seconds");
  EXPECT_THAT(message(layout("ring", 4, 1, false)), HasSubstr("backward_call_seconds"));
  write("backward_cal_seconds: 1\n");
  EXPECT_THAT(message(layout("ring", 4, 1, false)), HasSubstr("backward_cal_seconds"));
}

TEST_F(MeasuredMachine, OneRankCostsItsKernelsAndPasses) {
  const Cost cost = price(layout("all_gather", 1, 1, false), Scope::kAttentionForward);
  const odyssey::Run all[] = {{0, 2048, 1}};
  const auto pairs = static_cast<double>(visible_tile_pairs(all, all, MaskKind::kCausal, 0, 32));
  EXPECT_NEAR(cost.seconds("attention"), 8 * (pairs * 1e-10 + 2048 * 1e-8) + 2 * 2048 * 2e-8 + 1e-6,
              1e-12);
  // K and V go into the own block.
  EXPECT_NEAR(cost.seconds("copies"), 2 * 2 * 2048 * 2 * 128 * 2 * 1e-10, 1e-12);
  EXPECT_DOUBLE_EQ(cost.seconds("transfers"), 0);
  EXPECT_NEAR(cost.seconds("waiting"), 0, 1e-12);
}

TEST_F(MeasuredMachine, WaitingIsThatOfUnevenRanks) {
  const Cost uneven = price(layout("ring", 4, 1, false, 65536)),
             even = price(layout("ring", 4, 1, true, 65536));
  // 1, 3, 5, 7 parts of work on two cores take 9 and not 8.
  EXPECT_NEAR(uneven.step_seconds() / even.step_seconds(), 9.0 / 8, 0.05);
  EXPECT_GT(uneven.seconds("waiting"), 0.05 * uneven.step_seconds());
  EXPECT_LT(even.seconds("waiting"), 0.02 * even.step_seconds());
  EXPECT_GT(price(layout("ring", 4, 1, true, 65536), Scope::kStep).step_seconds(),
            even.step_seconds());
}

TEST_F(MeasuredMachine, TransfersAreThoseOfTheSchedules) {
  // Contiguous blocks of 512: rank r gets r blocks of K and V, and as many dK and dV in fp32.
  const Cost ring = price(layout("ring", 4, 1, false));
  const double rows = 512.0 * 2 * 2 * 128;  // elements of K and V
  const double forward = 6 * (2e-6 + rows * 2 * 2e-10), backward = 6 * (2e-6 + rows * 4 * 2e-10);
  // K and V come again for backward.
  EXPECT_NEAR(ring.seconds("transfers"), (2 * forward + backward) / 2, 1e-9);
  // Of heads: packed, sent and unpacked, the own part too; q, out, dout and dq, K and V twice.
  const Cost ulysses = price(layout("usp", 1, 2, false));
  const double queries = 1024.0 * 8 * 128, keys = 1024.0 * 2 * 128;
  const double bytes = 4 * queries * 2 + 2 * keys * (2 + 4);
  EXPECT_NEAR(ulysses.seconds("head exchange"), bytes * 5e-10 + 5 * 3e-6, 0.2 * bytes * 5e-10);
}

TEST_F(MeasuredMachine, HostsArePricedByTheirLinks) {
  Words words = layout("ring", 4, 1, true);
  const double near = price(words).step_seconds();
  // One core a host: every hop goes over the network, and no rank shares its core.
  words.emplace_back("hardware.chips=4");
  words.emplace_back("hardware.chips_per_node=1");
  const Cost far = price(words);
  EXPECT_GT(far.seconds("waiting"), 1e-4);
  words.back() = "hardware.chips_per_node=4";
  EXPECT_LT(price(words).step_seconds(), far.step_seconds());
  EXPECT_LT(far.step_seconds(), near);
}

TEST_F(MeasuredMachine, AStepHasItsWeightsAndRows) {
  const Cost step = price(layout("ring", 2, 1, true), Scope::kStep);
  for (const char* item : {"attention", "linear", "norms, activations", "weights", "optimizer"}) {
    EXPECT_GT(step.seconds(item), 0) << item;
  }
  EXPECT_GT(step.seconds("attention"), price(layout("ring", 2, 1, true)).seconds("attention"));
}

TEST_F(MeasuredMachine, MemoryIsTheTrainersOwnCount) {
  Words words = {"hardware=" + path_.string(), "packing=false"};
  const Job one = make_job("", words, [](const RunConfig&) { return RankBytes{1e9, 2e9, 3e9}; });
  EXPECT_DOUBLE_EQ(plan_memory(one, count(one)).total(), 6e9);
  EXPECT_NE(plan_memory(job({}), count(one)).total(), 6e9);
}

TEST_F(MeasuredMachine, PicturesShowItsRates) {
  const Job one = job(layout("ring", 4, 1, false));
  const Counts counts = count(one);
  const CallParts parts = call_parts(one, counts, counts.masks.front());
  // Four ranks on two cores; 8 heads, tiles of 128 x 128.
  EXPECT_NEAR(parts.tile, 8 * 128 * 128 * 1e-10 * 2, 1e-12);
  EXPECT_EQ(parts.hops, 3);
  EXPECT_NEAR(parts.hop, 2 * (2e-6 + 512.0 * 2 * 2 * 128 * 2 * 2e-10), 1e-9);
}

TEST_F(MeasuredMachine, ProductsGoWithTheLivePeak) {
  const CpuRates half = rates().at_peak(0.5);
  EXPECT_DOUBLE_EQ(half.backward.key_row, 2 * rates().backward.key_row);
  EXPECT_DOUBLE_EQ(half.linear_flop, 2 * rates().linear_flop);
  EXPECT_DOUBLE_EQ(half.pass_byte, rates().pass_byte);
  EXPECT_DOUBLE_EQ(half.live_peak_tflops, 0.5);
}

TEST_F(MeasuredMachine, AnotherTypeIsRefused) {
  Words words = layout("ring", 4, 1, true);
  words.emplace_back("dtype=float32");
  EXPECT_THAT(message(words), HasSubstr("odyssey calibrate dtype="));
}

}  // namespace
}  // namespace odyssey
