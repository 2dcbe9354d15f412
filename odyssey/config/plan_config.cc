// SPDX-License-Identifier: Apache-2.0
#include "odyssey/config/plan_config.h"

#include <array>

#include <fmt/core.h>

#include "odyssey/base/error.h"
#include "odyssey/config/resolve.h"

namespace odyssey {
namespace {

// remat_policy=custom: one key a tensor. Whether it stays on the device.
bool is_kept(const Settings& settings, const char* key) {
  const std::string& place = settings.text(key);
  if (place == "device") return true;
  if (place == "remat") return false;
  throw user_error(settings.label(key), "remat or device", place,
                   "Moving tensors to the host and back is not priced.");
}

RematConfig resolve_custom(const Settings& settings) {
  const auto kept = [&](const char* key) { return is_kept(settings, key); };
  RematConfig remat;
  remat.attention = !kept("context");
  remat.query_key_value =
      !kept("qkv_proj") && !(kept("query_proj") && kept("key_proj") && kept("value_proj"));
  remat.output = !kept("out_proj");
  remat.mlp_in = !kept("mlpwi") && !(kept("mlpwi_0") && kept("mlpwi_1"));
  remat.mlp_out = !kept("mlpwo");
  return remat;
}

RematConfig resolve_remat(const Settings& settings) {
  const std::string& name = settings.text("remat_policy");
  if (name == "custom") return resolve_custom(settings);
  for (const RematPolicy& policy : remat_policies()) {
    if (policy.name == name) return policy.again;
  }
  ODYSSEY_CHECK(false, "remat_policy {}", name);
  return {};
}

KernelConfig resolve_kernel(const Settings& settings) {
  KernelConfig kernel;
  kernel.block_q = settings.integer("sa_block_q");
  kernel.block_kv = settings.integer("sa_block_kv");
  kernel.backward_block_q = settings.integer("sa_block_q_dkv");
  kernel.backward_block_kv = settings.integer("sa_block_kv_dkv");
  kernel.dq_reduction_steps = settings.integer("dq_reduction_steps");
  if (kernel.dq_reduction_steps != 0 && kernel.dq_reduction_steps != 3) {
    throw user_error(settings.label("dq_reduction_steps"), "0 or 3",
                     fmt::format("{}", kernel.dq_reduction_steps),
                     "The kernels have no other form.");
  }
  kernel.megacore = settings.flag("sa_bwd_dkv_megacore");
  return kernel;
}

}  // namespace

std::span<const RematPolicy> remat_policies() {
  // What MaxText computes again: attention, query_key_value, output, mlp_in, mlp_out.
  static constexpr std::array<RematPolicy, 8> kPolicies = {{
      {"full", {true, true, true, true, true}},
      {"save_out_proj", {true, true, false, true, true}},
      {"save_qkv_proj", {true, false, true, true, true}},
      {"save_dot_except_mlp", {true, false, false, true, true}},
      {"save_dot_except_mlpwi", {true, false, false, true, false}},
      {"save_dot_with_context_except_mlp", {false, false, false, true, true}},
      {"minimal", {true, false, false, false, false}},
      {"minimal_with_context", {false, false, false, false, false}},
  }};
  return kPolicies;
}

PlanConfig make_plan_config(const Settings& settings, int64_t ranks) {
  PlanConfig config;
  config.run = resolve_run(settings, ranks);
  config.kernel = resolve_kernel(settings);
  config.remat = resolve_remat(settings);
  config.remat_policy = settings.text("remat_policy");
  config.fp8_linear = settings.text("quantization") == "fp8";
  config.may_split_torus = settings.flag("allow_split_physical_axes");
  return config;
}

}  // namespace odyssey
