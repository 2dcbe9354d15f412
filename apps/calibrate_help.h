// SPDX-License-Identifier: Apache-2.0
// The help texts of `odyssey calibrate` and `odyssey bench plan`; help.h has all others.
#pragma once
#include <string_view>

namespace odyssey {

extern const std::string_view kCalibrateHelp, kBenchPlanHelp;

}  // namespace odyssey
