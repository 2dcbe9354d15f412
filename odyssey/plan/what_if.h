// SPDX-License-Identifier: Apache-2.0
// What-ifs: what each single change of a job's flags would bring, the layout else unchanged.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "odyssey/plan/search.h"

namespace odyssey {

struct WhatIf {
  std::string words;        // the change, as one would write it
  double step_seconds = 0;  // after it
  double seconds = 0;       // what the step takes longer; below 0: less
  double ratio = 1;         // tokens a second, after over before
  bool fits = false;        // the memory of a chip
};

// `yml` and `words` made `job`, and `asked` is its row. The largest ratio first; changes that move
// the step by less than a thousandth, and such as the job cannot have, are left out.
std::vector<WhatIf> what_ifs(const std::string& yml, std::span<const std::string> words,
                             const Job& job, const PlanRow& asked);

}  // namespace odyssey
