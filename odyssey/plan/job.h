// SPDX-License-Identifier: Apache-2.0
// Job: one question to the planner, checked: a run, a machine and the constants of its family.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "odyssey/config/plan_config.h"
#include "odyssey/plan/calibration.h"
#include "odyssey/plan/hardware.h"

namespace odyssey {

// What the trainer here holds on the rank that needs most: bytes.
struct RankBytes {
  double state = 0;        // weights, gradients and moments
  double weights = 0;      // gathered groups
  double activations = 0;  // kept inputs, one layer, attention, logits
};
// train/memory.h knows it; it stands above plan/ in the order of folders.
using TrainerMemory = std::function<RankBytes(const RunConfig& config)>;

struct Job {
  PlanConfig config;
  Hardware hardware;
  Calibration calibration;
  TrainerMemory trainer_memory;  // of CPUs, which run the trainer here; may be empty
};

// Reads a yml (may be empty) and key=value words; hardware=NAME chooses the machine and
// hardware.FIELD=VALUE changes it; an axis of -1 takes what is left of its chips. Throws UserError.
Job make_job(const std::string& yml_path, std::span<const std::string> words,
             const TrainerMemory& trainer_memory = {});

}  // namespace odyssey
