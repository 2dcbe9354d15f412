// SPDX-License-Identifier: Apache-2.0
// Hardware: a machine as data, read from configs/hardware/NAME.yml. Public figures only; what share
// of them software reaches is the business of calibration.h.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "odyssey/plan/cpu_rates.h"

namespace odyssey {

enum class MachineKind { kTpu, kGpu, kCpu };
std::string_view name_of(MachineKind kind);

// One chip is what one rank runs on: a TPU chip, a GPU, or a share of a CPU node. Bytes are 10^9 to
// the GB, except memory in GiB.
struct Hardware {
  std::string name;  // of the file
  MachineKind kind = MachineKind::kTpu;
  std::string calibration;          // file of configs/calibration
  int64_t chips = 0;                // of the whole machine
  double tflops = 0;                // bf16 peak of a chip
  double fp8_tflops = 0;            // 0: no fp8
  double fp32_tflops = 0;           // 0: dtype=float32 is not priced
  int64_t cores = 1;                // of a chip, which share its peak
  double memory_gib = 0;            // of a chip, that a program may use
  double memory_gb_per_second = 0;  // of a chip

  // TPU: chips along each axis of the torus, and whether the axis is a ring (else a line).
  std::vector<int64_t> torus;
  std::vector<bool> wraps;
  double link_gb_per_second = 0;  // one link, one way

  // GPU and CPU: chips of one node talk at node speed, others over the network; per chip, one way.
  int64_t chips_per_node = 0;
  double node_gb_per_second = 0, network_gb_per_second = 0;
  int64_t cores_in_all = 0;       // of all nodes, also when ranks have shared the chips (make_job)
  std::optional<CpuRates> rates;  // of CPUs that `odyssey calibrate` measured
};

// Reads configs/hardware/NAME.yml, or the file where `name` ends in .yml; then applies `overrides`,
// words FIELD=VALUE. Throws UserError that names file, field, expected and actual: for unknown,
// missing and impossible fields alike.
Hardware load_hardware(const std::string& name, std::span<const std::string> overrides = {});

// The machines of configs/hardware, in order of name.
std::vector<std::string> hardware_names();

}  // namespace odyssey
