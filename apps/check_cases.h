// SPDX-License-Identifier: Apache-2.0
// What `odyssey check` tries on a layout: small attention calls with masks and lengths that hurt,
// each compared with dense attention in fp64.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "apps/attention_run.h"

namespace odyssey {

struct CheckCase {
  std::string name;
  RunConfig config;  // layout, data type and scale as given; the one mask of the case
  AttentionProblem problem;
};

// With the head counts, head size and sinks of the configuration, each of its masks, and one batch
// row for each rank slice of the batch. The length is max_target_length or less: short enough for
// dense fp64 on one core.
std::vector<CheckCase> make_check_cases(const RunConfig& config);

struct CheckResult {
  std::string fault;  // of the schedule; then nothing was run
  // The worst error of each tensor in units of what is allowed: 1 is the limit.
  double out = 0, lse = 0, dquery = 0, dkey = 0, dvalue = 0;
  double dsinks = 0;  // where there are sinks
  bool ok() const;
};

// Largest error that float32 may have: this, absolute and relative.
inline constexpr double kFloat32Tolerance = 1e-5;
// bfloat16 may be this much worse than one rank, as root mean square and in its worst element.
inline constexpr double kBfloat16Factor = 1.2, kBfloat16LargestFactor = 2;
// And twice that where there are fewer rows than this (tokens times heads): the roundings of a row
// go together, so the errors of few rows scatter.
inline constexpr size_t kManyRows = 1000;
inline constexpr double kBfloat16FewFactor = 2;
// Relative error of one rounding to bfloat16.
inline constexpr double kBfloat16Rounding = 0x1p-9;
// lse stays fp32, but the exponential of the bf16 kernels errs by up to 2e-4, a tenth of a
// rounding.
inline constexpr double kBfloat16LseTolerance = 2e-4;

// Collective over `world`; `alone` is a group of this rank only. The result is on rank 0.
CheckResult run_check_case(const CheckCase& check_case, Group& world, Group& alone);

// Attention work of the busiest rank over the mean, counted in visible (query, key) pairs times
// heads; 1 is perfect. In all, and where ring ranks wait for each other after every hop.
struct WorkBalance {
  double total = 1, by_hop = 1;
};
// segments [B, S], or empty: one document a row. masks: of all layers of a model.
WorkBalance work_balance(const AttentionLayout& layout, std::span<const int32_t> segments,
                         std::span<const MaskShare> masks);

// Segment ids [B, S] of full rows of 20 documents of mixed lengths (a log-normal distribution).
std::vector<int32_t> mixed_documents(int64_t batch, int64_t length);

}  // namespace odyssey
