// SPDX-License-Identifier: Apache-2.0
#include "odyssey/plan/calibration.h"

#include <algorithm>
#include <array>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "odyssey/plan/fields.h"

namespace odyssey {

std::span<const CalibrationField> calibration_fields() {
  using C = Calibration;
  static constexpr std::array<CalibrationField, 7> kFields = {{
      {"attention_efficiency", &C::attention_efficiency, true, 0.02, 1},
      {"collective_efficiency", &C::collective_efficiency, true, 0.05, 0.95},
      {"memory_efficiency", &C::memory_efficiency, true, 0.2, 0.95},
      {"ring_step_seconds", &C::ring_step_seconds, true, 1e-6, 1e-2},
      {"fixed_seconds", &C::fixed_seconds, true, 1e-5, 60},
      {"linear_efficiency", &C::linear_efficiency, false, 0.02, 1},
      {"tile_overhead_seconds", &C::tile_overhead_seconds, false, 0, 1e-3},
  }};
  return kFields;
}

namespace {

FittedOn read_fitted_on(Fields& fields) {
  constexpr int64_t kMost = 1'000'000'000;
  FittedOn on;
  on.cells = fields.whole("cells", 0, kMost);
  if (on.cells == 0) return on;
  on.machines = fields.list("machines");
  on.least_length = fields.whole("shortest", 1, kMost);
  on.most_length = fields.whole("longest", on.least_length, kMost);
  on.placements = fields.list("placements");
  on.unmeasured = fields.list("unmeasured");
  return on;
}

}  // namespace

Calibration load_calibration(const std::string& name) {
  Fields fields(plan_file("calibration", name));
  Calibration calibration;
  calibration.name = name;
  for (const CalibrationField& field : calibration_fields()) {
    calibration.*field.value = fields.number(std::string(field.name), field.least, field.most);
  }
  calibration.trims_hidden_blocks =
      fields.choice("trims_hidden_blocks", {"true", "false"}) == "true";
  calibration.fitted_on = read_fitted_on(fields);
  fields.refuse_rest();
  return calibration;
}

std::string calibration_text(const Calibration& calibration, std::span<const std::string> source) {
  std::string text;
  for (const std::string& line : source) text += fmt::format("# {}\n", line);
  for (const CalibrationField& field : calibration_fields()) {
    text += fmt::format("{}: {:.4g}{}\n", field.name, calibration.*field.value,
                        field.is_fitted ? "" : "  # not fitted");
  }
  text += fmt::format("trims_hidden_blocks: {}\n", calibration.trims_hidden_blocks);
  const FittedOn& on = calibration.fitted_on;
  text += fmt::format("cells: {}\n", on.cells);
  if (on.cells == 0) return text;
  text += fmt::format("machines: [{}]\nshortest: {}\nlongest: {}\n", fmt::join(on.machines, ", "),
                      on.least_length, on.most_length);
  text += fmt::format("placements: [{}]\nunmeasured: [{}]\n", fmt::join(on.placements, ", "),
                      fmt::join(on.unmeasured, ", "));
  return text;
}

}  // namespace odyssey
