// SPDX-License-Identifier: Apache-2.0
// `odyssey check` as a user runs it.
#include <string>

#include <gmock/gmock.h>

#include "apps/run_program.h"

namespace odyssey {
namespace {

using testing::HasSubstr;

TEST(CheckCommand, ProvesALayout) {
  for (const std::string words :
       {"configs/tiny.yml", "configs/tiny.yml dtype=bfloat16 max_target_length=100",
        // The examples of the help.
        "configs/tiny.yml attention_type=full",
        "configs/tiny.yml ici_context_parallelism=2 ici_context_usp_ulysses_parallelism=4",
        // No yml; -1 takes the ranks.
        "base_num_query_heads=4 base_num_kv_heads=1 head_dim=8 max_target_length=64 "
        "context_parallel_strategy=ring ici_context_parallelism=-1 ici_fsdp_parallelism=1 "
        "attention_type=local_sliding sliding_window_size=9 attn_logits_soft_cap=5 "
        "attention_scale=0.3 --ranks 3"}) {
    const ProgramResult result = run_program("check " + words);
    EXPECT_EQ(result.code, 0) << words << result.err;
    EXPECT_EQ(result.err, "");
    EXPECT_THAT(result.out, HasSubstr("every visible pair exactly once"));
    EXPECT_THAT(result.out, HasSubstr("packed documents"));
    EXPECT_THAT(result.out, HasSubstr("cases equal dense attention\n"));
    EXPECT_THAT(result.out, testing::Not(HasSubstr("FAILED")));
  }
}

// Every mask of the layers, and sinks with their gradient; bytes and balance are those of all
// layers.
TEST(CheckCommand, ProvesTheMasksOfAllLayers) {
  const std::string words =
      "check configs/tiny.yml max_target_length=256 sliding_window_size=9 attention_sink=true "
      "base_num_decoder_layers=3 attention_pattern=";
  const ProgramResult result = run_program(words + "[local_sliding,local_sliding,global]");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("one forward and backward of a mean layer"));
  EXPECT_THAT(result.out, testing::ContainsRegex("as configured  .*256  local_sliding.*ok"));
  EXPECT_THAT(result.out, testing::ContainsRegex("as configured  .*256  causal.*ok"));
  EXPECT_THAT(result.out, testing::ContainsRegex("packed documents.*256  causal.*ok"));
  EXPECT_THAT(result.out, HasSubstr("dvalue  dsinks\n"));
  EXPECT_THAT(result.out, testing::Not(HasSubstr("FAILED")));
}

TEST(CheckCommand, SaysHowWellTheWorkIsShared) {
  EXPECT_THAT(run_program("check configs/tiny.yml").out, HasSubstr("busiest rank 1.00 x the mean"));
  EXPECT_THAT(run_program("check configs/tiny.yml context_parallel_load_balance=false "
                          "context_parallel_reorder_strategy=auto")
                  .out,
              HasSubstr("busiest rank 1.75 x the mean"));
}

TEST(CheckCommand, SaysHowPackedRowsAndHeadsAreShared) {
  const std::string words =
      "check base_num_query_heads=9 base_num_kv_heads=3 head_dim=4 max_target_length=16384 "
      "context_parallel_strategy=usp ici_context_parallelism=8 "
      "ici_context_usp_ulysses_parallelism=4 dtype=float32 per_device_batch_size=0.03125 "
      "context_parallel_reorder_strategy=";
  const std::string heads =
      "heads of a rank: at most 3 query, 2 key/value; busiest rank 1.33 x and 1.60 x the mean";
  const std::string even = run_program(words + "per_document").out;
  EXPECT_THAT(even, HasSubstr(heads));
  // 4/3 from the heads.
  EXPECT_THAT(even, testing::ContainsRegex("balance: hop by hop 1.33 x; rows of 20 documents of "
                                           "mixed lengths 1.3. x, hop by hop 1.3"));
  EXPECT_THAT(run_program(words + "dual_chunk_swap").out,
              testing::ContainsRegex("hop by hop 1.33 x; rows of 20 documents of mixed lengths "
                                     "[2-9]"));
}

// S 256, ring of 4: the window reaches one token into the block before.
TEST(CheckCommand, SaysWhatTheMaskSaves) {
  EXPECT_THAT(run_program("check base_num_query_heads=1 base_num_kv_heads=1 head_dim=8 "
                          "max_target_length=256 context_parallel_strategy=ring "
                          "ici_context_parallelism=4 attention_type=local_sliding "
                          "sliding_window_size=2 context_parallel_load_balance=false dtype=float32")
                  .out,
              // 3 tokens of 64 bytes in forward, as many and their gradients in backward; whole
              // blocks: 12 of 64 tokens.
              HasSubstr("all ranks send 576 B, 147 kB less than whole blocks"));
}

}  // namespace
}  // namespace odyssey
