// SPDX-License-Identifier: Apache-2.0
#include "odyssey/plan/job.h"

#include <algorithm>

#include <fmt/core.h>

#include "odyssey/base/error.h"

namespace odyssey {
namespace {

constexpr std::string_view kPrefix = "hardware.";

// A share of a CPU machine for each rank: more ranks than chips share them, fewer have several.
void share_chips(Hardware& hardware, int64_t ranks) {
  const double share = static_cast<double>(hardware.chips) / static_cast<double>(ranks);
  for (double* rate : {&hardware.tflops, &hardware.fp32_tflops, &hardware.memory_gib,
                       &hardware.memory_gb_per_second, &hardware.node_gb_per_second,
                       &hardware.network_gb_per_second}) {
    *rate *= share;
  }
  const double nodes =
      static_cast<double>(hardware.chips) / static_cast<double>(hardware.chips_per_node);
  hardware.chips = ranks;
  hardware.chips_per_node =
      std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(ranks) / nodes));
}

void check_data_types(const Job& job) {
  if (job.config.run.model.data_type == DataType::kFloat32 && job.hardware.fp32_tflops == 0) {
    throw user_error("dtype", fmt::format("bfloat16 with hardware={}", job.hardware.name),
                     "float32", "The machine's file has no fp32_tflops.");
  }
  if (job.config.fp8_linear && job.hardware.fp8_tflops == 0) {
    throw user_error("quantization",
                     fmt::format("nothing with hardware={}, which has no fp8", job.hardware.name),
                     "fp8", "Leave it out, or give hardware.fp8_tflops.");
  }
}

}  // namespace

Job make_job(const std::string& yml_path, std::span<const std::string> words,
             const TrainerMemory& trainer_memory) {
  std::vector<std::string> keys, overrides;
  for (const std::string& word : words) {
    if (word.starts_with(kPrefix)) {
      overrides.push_back(word.substr(kPrefix.size()));
    } else {
      keys.push_back(word);
    }
  }
  const Settings settings = make_settings(yml_path, keys, true, Purpose::kPlan);
  Job job;
  job.hardware = load_hardware(settings.text("hardware"), overrides);
  job.calibration = load_calibration(job.hardware.calibration);
  const bool is_cpu = job.hardware.kind == MachineKind::kCpu;
  job.config = make_plan_config(settings, is_cpu ? 0 : job.hardware.chips);
  if (is_cpu) share_chips(job.hardware, job.config.run.parallel.ranks());
  if (job.hardware.kind != MachineKind::kTpu) {
    // The tiles of flash attention on GPUs, and of the kernels here.
    constexpr int64_t kTile = 128;
    job.config.kernel = {kTile, kTile, kTile, kTile, 0, false};
  }
  check_data_types(job);
  job.trainer_memory = trainer_memory;
  return job;
}

}  // namespace odyssey
