// SPDX-License-Identifier: Apache-2.0
// `odyssey bench attention`: what a layout costs. Runs one attention call, forward and backward, on
// every layout of some numbers of ranks, by turns, and holds each against one dense rank.
#pragma once
#include "apps/bench_attention_rows.h"
#include "apps/launch.h"

namespace odyssey {

// Prints a table when all is measured, and writes the JSON file. Returns the exit code.
int run_bench_attention(const BenchAttentionCommand& command, Engine engine);

}  // namespace odyssey
