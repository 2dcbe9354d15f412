// SPDX-License-Identifier: Apache-2.0
#include "apps/fitting.h"

#include <sstream>
#include <vector>

#include <gtest/gtest.h>

#include "odyssey/config/run_config.h"
#include "odyssey/train/memory.h"

namespace odyssey {
namespace {

const std::vector<std::string> kWords = {"model_name=llama3-8b",
                                         "enable_checkpointing=False",
                                         "per_device_batch_size=0.015625",
                                         "max_target_length=65536",
                                         "context_parallel_strategy=usp",
                                         "ici_context_parallelism=16",
                                         "ici_context_ulysses_parallelism=4"};

TEST(Fitting, TheKeysReallyFit) {
  for (int64_t gigabytes : {14, 20, 200}) {
    const int64_t bytes = gigabytes * 1'000'000'000;
    std::vector<std::string> words = kWords;
    std::istringstream keys(keys_that_fit("", kWords, 16, 4, bytes));
    int count = 0;
    for (std::string word; keys >> word; ++count) {
      const std::string key = word.substr(0, word.find('='));
      std::erase_if(words, [&](const std::string& w) {
        return w.starts_with(key + "=") || (key == "ici_context_usp_ulysses_parallelism" &&
                                            w.starts_with("ici_context_ulysses"));
      });
      words.push_back(word);
    }
    EXPECT_GT(count, 0);
    const RunConfig config = make_run_config("", words, 0);
    EXPECT_LE(memory_need(config).of_rank() * config.parallel.ranks(), bytes) << gigabytes << " GB";
  }
}

TEST(Fitting, KeepsTheModelWhereItCan) {
  EXPECT_EQ(keys_that_fit("", kWords, 16, 4, int64_t{250} << 30).find("model_name"),
            std::string::npos);
}

TEST(Fitting, SaysNothingWhenNothingHelps) {
  EXPECT_EQ(keys_that_fit("", kWords, 16, 4, 1'000'000), "");
}

}  // namespace
}  // namespace odyssey
