// SPDX-License-Identifier: Apache-2.0
// The command line of `odyssey bench`: which options each kind of benchmark has, and what their
// texts mean.
#pragma once
#include <span>
#include <string>
#include <vector>

namespace odyssey {

// The texts as they were given; empty where an option was not.
struct BenchArguments {
  std::vector<std::string> words;  // the kind first
  std::string json, threads, seconds, clock;
  std::string comm, ranks, lengths, strategies, placements, documents, repeats, steps;
};

struct BenchOption {
  const char* name;
  std::string BenchArguments::*text;
  std::vector<std::string> kinds;  // kernel, attention, step
};
std::span<const BenchOption> bench_option_table();

// "--json, --threads or --help": the options of a kind; of all where it is no kind.
std::string bench_option_names(const std::string& kind);

// Reads everything, then runs the benchmark. Returns the exit code. Throws UserError.
int run_bench(const BenchArguments& arguments);

}  // namespace odyssey
