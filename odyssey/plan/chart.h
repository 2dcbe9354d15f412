// SPDX-License-Identifier: Apache-2.0
// Charts: predictions as SVG, self-contained text that any browser shows.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "odyssey/plan/search.h"
#include "odyssey/plan/timeline.h"

namespace odyssey {

// Seconds of a step against the length, of one layout.
struct Curve {
  struct Point {
    int64_t length = 0;
    double seconds = 0;
    bool fits = false;
  };
  std::string name;  // "usp 16x4 contiguous"
  PlacementKind placement = PlacementKind::kContiguous;
  bool is_asked = false;
  size_t color = 0;  // equal for curves that differ by placement only
  std::vector<Point> points;
};

// The first `top` rows and the asked one, from an eighth of the job's length to eight times that.
std::vector<Curve> step_curves(const Job& job, const std::vector<PlanRow>& rows, int top);

// Both axes logarithmic; one <g class="series"> a curve; points that do not fit the memory hollow.
std::string lengths_svg(const std::vector<Curve>& curves);

// One line a rank: attention, waiting, and below it the transfer beside them.
std::string timeline_svg(const Timeline& timeline);

}  // namespace odyssey
