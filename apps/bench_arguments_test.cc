// SPDX-License-Identifier: Apache-2.0
// The command line of `odyssey bench`: kinds, their options, and what each refuses before any work.
#include <gmock/gmock.h>

#include "apps/run_program.h"

namespace odyssey {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

void expect_refused(const std::string& arguments, const std::string& message,
                    const std::string& before = "") {
  SCOPED_TRACE(arguments);
  const ProgramResult result = run_program("bench " + arguments, before);
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.err, "odyssey: error: " + message + "\n");
  EXPECT_THAT(result.out, IsEmpty());
}

TEST(BenchArguments, KindsAndTheirHelp) {
  const std::string kinds = "odyssey bench: expected kernel, attention, step or plan, got ";
  expect_refused("", kinds + "nothing. See odyssey bench --help.");
  expect_refused("speed", kinds + "speed. See odyssey bench --help.");
  EXPECT_THAT(run_program("bench --help").out, StartsWith("odyssey bench: "));
  for (const std::string kind : {"kernel", "attention", "step"}) {
    const ProgramResult result = run_program("bench " + kind + " --help");
    EXPECT_EQ(result.code, 0);
    EXPECT_THAT(result.out, StartsWith("odyssey bench " + kind + ": "));
    EXPECT_THAT(result.out, HasSubstr("Usage: odyssey bench " + kind));
    EXPECT_THAT(result.out, HasSubstr("Example:\n  odyssey bench " + kind));
    for (size_t at = 0, end; (end = result.out.find('\n', at)) != std::string::npos; at = end + 1) {
      EXPECT_LE(end - at, 100U) << result.out.substr(at, end - at);
    }
  }
}

TEST(BenchArguments, OptionsOfOtherKinds) {
  expect_refused("kernel small --ranks 2",
                 "option: expected --json, --threads, --seconds, --clock or --help, got --ranks. "
                 "See odyssey bench kernel --help.");
  expect_refused("attention --threads 2",
                 "option: expected --json, --ranks, --lengths, --strategies, --placements, "
                 "--documents, --repeats, --comm or --help, got --threads. See odyssey bench "
                 "attention --help.");
  expect_refused("step configs/tiny.yml --documents 2",
                 "option: expected --json, --ranks, --lengths, --strategies, --placements, "
                 "--steps, --repeats, --comm or --help, got --documents. See odyssey bench step "
                 "--help.");
  expect_refused("attention --langths 2",
                 "option: expected --json, --ranks, --lengths, --strategies, --placements, "
                 "--documents, --repeats, --comm or --help, got --langths. See odyssey bench "
                 "attention --help.");
}

TEST(BenchArguments, ListsAndNumbers) {
  for (const std::string kind : {"attention", "step configs/tiny.yml"}) {
    const std::string see = " See odyssey bench " + kind.substr(0, kind.find(' ')) + " --help.";
    for (const std::string lengths : {"0", "-1", "4k", "64,", ",64", "64,,32", "1.5"}) {
      expect_refused(kind + " --lengths=" + lengths,
                     "--lengths: expected whole numbers from 1 to 2147483648, with commas between "
                     "them, got " +
                         lengths + "." + see);
    }
    expect_refused(kind + " --lengths 64,32,64",
                   "--lengths: expected each value once, got 64 twice." + see);
    const std::string strategies = "--strategies: expected all_gather, ring, ulysses or usp, got ";
    expect_refused(kind + " --strategies ring,ulises",
                   strategies + "ulises. Did you mean ulysses?");
    expect_refused(kind + " --strategies tree", strategies + "tree." + see);
    expect_refused(kind + " --strategies ring,", strategies + "an empty word." + see);
    expect_refused(
        kind + " --placements zigzag",
        "--placements: expected contiguous, dual_chunk_swap, striped or per_document, got zigzag." +
            see);
    expect_refused(kind + " --repeats 0",
                   "--repeats: expected a whole number from 1 to 1000, got 0." + see);
    expect_refused(kind + " --comm smoke",
                   "--comm: expected auto, threads or mpi, got smoke." + see);
    expect_refused(kind + " --lengths 64 --ranks 2 --json nope/rows.jsonl",
                   "--json: expected a file that may be written, got nope/rows.jsonl (No such file "
                   "or directory). Make its folder or choose another file.");
    EXPECT_EQ(run_program("bench " + kind, "ODYSSEY_MAX_ISA=avx10").code, 2);
  }
  expect_refused("attention --ranks 2,0",
                 "--ranks: expected whole numbers from 1 to 1024, with commas between them, got "
                 "2,0. See odyssey bench attention --help.");
  expect_refused("attention --placements striped,per_document",
                 "--placements: expected per_document only with --documents above 1, got "
                 "striped,per_document. See odyssey bench attention --help.");
  expect_refused("step configs/tiny.yml --ranks 2,4",
                 "--ranks: expected a whole number from 1 to 1024, got 2,4. See odyssey bench step "
                 "--help.");
  expect_refused("step configs/tiny.yml --steps 0",
                 "--steps: expected a whole number from 1 to 100000, got 0. See odyssey bench step "
                 "--help.");
}

TEST(BenchArguments, KeysAndLayoutsThatDoNotFit) {
  const std::string layouts =
      ". Layouts come from --ranks, --strategies and --placements, lengths from --lengths.";
  for (const std::string word :
       {"context_parallel_strategy=ring", "ici_context_parallelism=2", "max_target_length=9"}) {
    const std::string key = word.substr(0, word.find('='));
    expect_refused("attention " + word,
                   key + ": expected to be left to odyssey bench attention, got " + word + layouts);
    expect_refused("step configs/tiny.yml " + word,
                   key + ": expected to be left to odyssey bench step, got " + word + layouts);
  }
  expect_refused("step configs/tiny.yml steps=3",
                 "steps: expected to be left to odyssey bench step, got steps=3. Take it out. See "
                 "odyssey bench step --help.");
  expect_refused("attention learning_rate=1",
                 "key: expected base_num_query_heads, base_num_kv_heads, head_dim, dtype, "
                 "attention_type, sliding_window_size, chunk_attn_window_size, "
                 "attn_logits_soft_cap, attention_scale or comm_timeout_seconds, got "
                 "learning_rate=1. Other keys change no attention call.");
  expect_refused("attention --strategies usp --ranks 2,3",
                 "--strategies: expected one that 2 or 3 ranks can have, got usp alone. usp needs "
                 "R x U ranks, both at least 2. See odyssey bench attention --help.");
  expect_refused("step configs/tiny.yml --strategies usp --ranks 3",
                 "--strategies: expected one that 3 ranks can have, got usp alone. usp needs R x U "
                 "ranks, both at least 2. See odyssey bench step --help.");
  expect_refused("attention --lengths 64,8 --documents 9",
                 "--documents: expected at most S=8, got 9. A document has at least one token.");
  expect_refused("step",
                 "odyssey bench step: expected CONFIG.yml before the key=value words, got nothing. "
                 "See odyssey bench step --help.");
  EXPECT_THAT(run_program("bench attention attention_type=local_sliding").err,
              HasSubstr("sliding_window_size"));
  EXPECT_THAT(run_program("bench attention --lengths 2000000000 --ranks 2").err,
              HasSubstr("memory of the largest row: expected at most the "));
  EXPECT_THAT(run_program("bench step configs/tiny.yml --lengths 1000000000 --ranks 2").err,
              HasSubstr("memory of the table: expected at most the "));
}

}  // namespace
}  // namespace odyssey
