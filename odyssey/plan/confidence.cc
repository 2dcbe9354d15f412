// SPDX-License-Identifier: Apache-2.0
#include "odyssey/plan/confidence.h"

#include <algorithm>
#include <filesystem>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "odyssey/plan/cpu_cost.h"
#include "odyssey/plan/fields.h"

namespace odyssey {
namespace {

// Rates per chip and link. The number of chips is another question; ranks on CPUs share theirs
// evenly, so there the name tells.
bool is_same_chip(const Hardware& a, const Hardware& b) {
  if (a.kind == MachineKind::kCpu) return a.name == b.name;
  return a.kind == b.kind && a.tflops == b.tflops && a.cores == b.cores &&
         a.memory_gb_per_second == b.memory_gb_per_second &&
         a.link_gb_per_second == b.link_gb_per_second &&
         a.node_gb_per_second == b.node_gb_per_second &&
         (a.chips <= a.chips_per_node || b.chips <= b.chips_per_node ||
          a.network_gb_per_second == b.network_gb_per_second);
}

void add_unique(std::vector<std::string>& texts, const std::string& text) {
  if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
}

}  // namespace

std::string_view name_of(Confidence confidence) {
  switch (confidence) {
    case Confidence::kInterpolated:
      return "interpolated";
    case Confidence::kExtrapolated:
      return "extrapolated";
    case Confidence::kScaled:
      return "scaled";
    case Confidence::kGuessed:
      return "guessed";
  }
  return "?";
}

Trust trust(const Job& job) {
  const Hardware& hardware = job.hardware;
  const FittedOn& on = job.calibration.fitted_on;
  Trust result;
  const auto lower_to = [&](Confidence confidence, const std::string& reason) {
    result.confidence = std::max(result.confidence, confidence);
    result.reasons.push_back(reason);
  };
  if (was_measured(job)) {
    result.reasons.push_back(fmt::format("{} was measured by odyssey calibrate", hardware.name));
    return result;
  }
  const std::string family = job.calibration.name;
  if (on.cells == 0) {
    lower_to(Confidence::kGuessed,
             fmt::format("the constants of {} were fitted on nothing", family));
    return result;
  }
  int64_t most_chips = 0;  // measured, of this chip
  for (const std::string& name : on.machines) {
    // A file may have gone since the fit.
    if (!std::filesystem::exists(plan_file("hardware", name))) continue;
    const Hardware measured = load_hardware(name);
    if (is_same_chip(hardware, measured)) most_chips = std::max(most_chips, measured.chips);
  }
  result.reasons.push_back(fmt::format("the constants of {} were fitted on {} cells of {}", family,
                                       on.cells, fmt::join(on.machines, ", ")));
  if (most_chips == 0) {
    lower_to(
        Confidence::kScaled,
        fmt::format("{} has other chips, which are scaled by their data sheets", hardware.name));
  } else if (hardware.kind != MachineKind::kCpu && hardware.chips > most_chips) {
    lower_to(Confidence::kExtrapolated,
             fmt::format("{} chips, where {} were measured", hardware.chips, most_chips));
  }
  const int64_t length = job.config.run.data.sequence_length;
  if (length < on.least_length || length > on.most_length) {
    const std::string range = on.least_length == on.most_length
                                  ? fmt::format("{}", on.least_length)
                                  : fmt::format("{} to {}", on.least_length, on.most_length);
    lower_to(Confidence::kExtrapolated,
             fmt::format("{} tokens, where {} were measured", length, range));
  }
  const std::string placement{name_of(job.config.run.parallel.placement)};
  if (std::find(on.placements.begin(), on.placements.end(), placement) == on.placements.end()) {
    lower_to(Confidence::kExtrapolated, fmt::format("placement {}, where only {} was measured",
                                                    placement, fmt::join(on.placements, " and ")));
  }
  if (!on.unmeasured.empty()) {
    lower_to(Confidence::kExtrapolated,
             fmt::format("no measurement stands behind {}", fmt::join(on.unmeasured, " and ")));
  }
  return result;
}

FittedOn fitted_on(std::span<const Sample> samples, std::span<const double> errors) {
  FittedOn on;
  on.cells = static_cast<int64_t>(samples.size());
  for (const Sample& sample : samples) {
    const Job& job = sample.cell->job;
    const int64_t length = job.config.run.data.sequence_length;
    on.least_length = on.least_length == 0 ? length : std::min(on.least_length, length);
    on.most_length = std::max(on.most_length, length);
    add_unique(on.machines, job.hardware.name);
    add_unique(on.placements, std::string(name_of(job.config.run.parallel.placement)));
  }
  for (size_t f = 0; f < errors.size(); ++f) {
    const CalibrationField& field = calibration_fields()[f];
    if (field.is_fitted && errors[f] == 0) on.unmeasured.emplace_back(field.name);
  }
  return on;
}

}  // namespace odyssey
