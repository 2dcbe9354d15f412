// SPDX-License-Identifier: Apache-2.0
#include "odyssey/plan/what_if.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "odyssey/base/error.h"
#include "odyssey/config/keys.h"

namespace odyssey {
namespace {

using Words = std::vector<std::string>;

// Of a word key=value, in the spelling of the registry.
std::string key_of(const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  const Key* key = find_key(name);
  return key == nullptr ? name : key->name;
}

// `words` with those of the change in place of the same keys. Fields of a machine go with it.
Words changed(std::span<const std::string> words, const Words& change) {
  Words result;
  for (const std::string& word : words) {
    const bool replaced = std::any_of(change.begin(), change.end(), [&](const std::string& other) {
      return key_of(other) == key_of(word) ||
             (key_of(other) == "hardware" && word.starts_with("hardware."));
    });
    if (!replaced) result.push_back(word);
  }
  result.insert(result.end(), change.begin(), change.end());
  return result;
}

void add_layouts(const ParallelConfig& parallel, std::vector<Words>& changes) {
  if (parallel.placement == PlacementKind::kContiguous) {
    changes.push_back({"context_parallel_load_balance=true"});
  } else {
    changes.push_back({"context_parallel_load_balance=false"});
  }
  if (parallel.outer_gather) return;
  const auto usp = [&](int ring, int ulysses) {
    return Words{"context_parallel_strategy=usp", fmt::format("ici_context_parallelism={}", ring),
                 fmt::format("ici_context_usp_ulysses_parallelism={}", ulysses)};
  };
  const int ring = parallel.ring_size, ulysses = parallel.ulysses_size;
  if (ring % 2 == 0) changes.push_back(usp(ring / 2, 2 * ulysses));
  if (ulysses % 2 == 0) changes.push_back(usp(2 * ring, ulysses / 2));
}

void add_kernels(std::vector<Words>& changes) {
  changes.push_back({"dq_reduction_steps=3"});
  changes.push_back({"sa_bwd_dkv_megacore=true"});
  changes.push_back(
      {"sa_block_q=1024", "sa_block_kv=1024", "sa_block_q_dkv=1024", "sa_block_kv_dkv=1024"});
}

std::vector<Words> changes_of(const Job& job, const PlanRow& asked) {
  std::vector<Words> changes;
  add_layouts(job.config.run.parallel, changes);
  // Kernels and compilers of other machines have these; the trainer on CPUs has not.
  if (job.hardware.kind == MachineKind::kTpu) add_kernels(changes);
  if (job.hardware.kind != MachineKind::kCpu) {
    for (const RematPolicy& policy : remat_policies()) {
      changes.push_back({fmt::format("remat_policy={}", policy.name)});
    }
    if (job.hardware.fp8_tflops > 0) changes.push_back({"quantization=fp8"});
  }
  const DataConfig& data = job.config.run.data;
  changes.push_back({fmt::format("max_target_length={}", 2 * data.sequence_length)});
  changes.push_back(
      {fmt::format("per_device_batch_size={}", 2 * static_cast<double>(asked.batch_rows) /
                                                   static_cast<double>(asked.parallel.ranks()))});
  for (const std::string& name : hardware_names()) {
    if (name == job.hardware.name || load_hardware(name).chips != job.hardware.chips) continue;
    changes.push_back({"hardware=" + name});
  }
  return changes;
}

}  // namespace

std::vector<WhatIf> what_ifs(const std::string& yml, std::span<const std::string> words,
                             const Job& job, const PlanRow& asked) {
  constexpr double kUnchanged = 1e-3;
  std::vector<WhatIf> found;
  for (const Words& change : changes_of(job, asked)) {
    PlanRow row;
    try {
      CountCache cache;
      row = price(make_job(yml, changed(words, change), job.trainer_memory), cache);
    } catch (const UserError&) {
      continue;  // this run cannot have it
    }
    const double seconds = row.step_seconds - asked.step_seconds;
    if (std::fabs(seconds) < kUnchanged * asked.step_seconds) continue;
    found.push_back({fmt::format("{}", fmt::join(change, " ")), row.step_seconds, seconds,
                     row.tokens_per_second / asked.tokens_per_second, row.fits});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const WhatIf& a, const WhatIf& b) { return a.ratio > b.ratio; });
  return found;
}

}  // namespace odyssey
