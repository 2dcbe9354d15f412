// SPDX-License-Identifier: Apache-2.0
// What `odyssey bench attention` was asked for, and the rows that it makes of that.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "apps/bench_attention_run.h"
#include "apps/bench_layouts.h"

namespace odyssey {

struct BenchAttentionCommand {
  std::vector<std::string> key_values;  // shape, mask and data type
  std::vector<int> ranks;               // empty: 8 threads, or all processes
  std::vector<int64_t> lengths = {16384};
  BenchChoice choice;
  int64_t documents = 1;  // of each row of tokens
  int repeats = 3;
  std::string json;  // file of results; empty: none
};

// The rows in the order of the table: for each length one dense rank, then the layouts of each
// number of ranks. `processes` of an MPI run; 0: ranks are threads. Throws UserError for every key,
// length or number that does not fit.
std::vector<BenchAttentionRow> bench_attention_rows(const BenchAttentionCommand& command,
                                                    int64_t processes);

// Throws UserError when the largest row does not fit in the memory of this machine, which holds at
// most `ranks_here` ranks of a row.
void check_bench_memory(const std::vector<BenchAttentionRow>& rows, int ranks_here);

// Equal on all ranks that measure the same rows.
uint64_t hash_of(const BenchAttentionCommand& command, const std::vector<BenchAttentionRow>& rows);

}  // namespace odyssey
