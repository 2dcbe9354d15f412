// SPDX-License-Identifier: Apache-2.0
// The answer of `odyssey plan` as text: the table of layouts, why the first one wins, the asked
// layout item by item, what single changes would bring, and how far to believe all that.
#pragma once
#include <string>
#include <vector>

#include "odyssey/plan/confidence.h"
#include "odyssey/plan/what_if.h"

namespace odyssey {

struct PlanReport {
  Job job;
  std::vector<PlanRow> rows;  // of search()
  std::vector<WhatIf> what_ifs;
  Trust trust;

  const PlanRow& asked() const;
};

// `top`: layouts in the table; the asked one is shown in any case.
std::string report_text(const PlanReport& report, int top);

}  // namespace odyssey
