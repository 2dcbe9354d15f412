// SPDX-License-Identifier: Apache-2.0
// The answer of `odyssey plan` as JSON: all rows of the search. docs/planner.md lists the fields.
#pragma once
#include <string>

#include "apps/plan_report.h"

namespace odyssey {

// One object, with a line end.
std::string report_json(const PlanReport& report);

}  // namespace odyssey
