// SPDX-License-Identifier: Apache-2.0
// PlanConfig: what `odyssey plan` is asked to price: a run, as training reads it, and what only
// another machine's kernels and compiler have. Checked here; nothing of it changes a run.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "odyssey/config/run_config.h"
#include "odyssey/config/settings.h"

namespace odyssey {

// Grid of the attention kernels: rows of one grid step. A kernel takes fewer where a rank has
// fewer.
struct KernelConfig {
  int64_t block_q = 512, block_kv = 512;                    // forward: sa_block_q, sa_block_kv
  int64_t backward_block_q = 512, backward_block_kv = 512;  // sa_block_q_dkv, sa_block_kv_dkv
  int64_t dq_reduction_steps = 0;  // 0: a partial sum of dq for each key block; 3: three in all
  bool megacore = false;           // sa_bwd_dkv_megacore: backward on both cores of a TPU chip
};

// What the backward pass computes again because forward did not keep it (remat_policy). All of it
// is what the trainer here does.
struct RematConfig {
  bool attention = true, query_key_value = true, output = true, mlp_in = true, mlp_out = true;
};

// The values of remat_policy other than custom.
struct RematPolicy {
  std::string_view name;
  RematConfig again;
};
std::span<const RematPolicy> remat_policies();

struct PlanConfig {
  RunConfig run;
  KernelConfig kernel;
  RematConfig remat;
  std::string remat_policy;      // its name
  bool fp8_linear = false;       // quantization=fp8: products with weights, not attention
  bool may_split_torus = false;  // allow_split_physical_axes
};

// `settings` were made for Purpose::kPlan; `ranks` as in make_run_config.
PlanConfig make_plan_config(const Settings& settings, int64_t ranks);

}  // namespace odyssey
