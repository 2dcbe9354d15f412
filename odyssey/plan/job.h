// SPDX-License-Identifier: Apache-2.0
// Job: one question to the planner, checked: a run, a machine and the constants of its family.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "odyssey/config/plan_config.h"
#include "odyssey/plan/calibration.h"
#include "odyssey/plan/hardware.h"

namespace odyssey {

struct Job {
  PlanConfig config;
  Hardware hardware;
  Calibration calibration;
};

// Reads a yml (may be empty) and key=value words; hardware=NAME chooses the machine and
// hardware.FIELD=VALUE changes it; an axis of -1 takes what is left of its chips. Throws UserError.
Job make_job(const std::string& yml_path, std::span<const std::string> words);

}  // namespace odyssey
