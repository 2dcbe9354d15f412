// SPDX-License-Identifier: Apache-2.0
#include "odyssey/plan/hardware.h"

#include <algorithm>
#include <charconv>

#include <fmt/core.h>

#include "odyssey/base/error.h"
#include "odyssey/config/spelling.h"
#include "odyssey/plan/fields.h"

namespace odyssey {
namespace {

// Far beyond any machine; keeps products away from overflow.
constexpr int64_t kMostChips = 1'000'000;
constexpr double kLeastRate = 1e-6, kMostRate = 1e9;

// torus: [4, 4, 4] and wraps: [true, true, false].
void read_torus(Fields& fields, Hardware& hardware) {
  int64_t product = 1;
  for (const std::string& item : fields.list("torus")) {
    int64_t size = 0;
    const auto [stop, error] = std::from_chars(item.data(), item.data() + item.size(), size);
    if (error != std::errc() || stop != item.data() + item.size() || size < 1 ||
        size > kMostChips) {
      throw user_error(fields.label("torus"), "chips along each axis, such as [4, 4, 4]", item,
                       "Give whole numbers of at least 1.");
    }
    hardware.torus.push_back(size);
    product = std::min(product * size, kMostChips + 1);
  }
  constexpr size_t kMostAxes = 6;
  if (hardware.torus.size() > kMostAxes) {
    throw user_error(fields.label("torus"), fmt::format("at most {} axes", kMostAxes),
                     fmt::format("{}", hardware.torus.size()), "No such machine is known.");
  }
  if (product != hardware.chips) {
    throw user_error(fields.label("torus"),
                     fmt::format("axes that multiply to chips={}", hardware.chips),
                     fmt::format("a product of {}", product), "Change one of the two.");
  }
  for (const std::string& item : fields.list("wraps")) {
    if (item != "true" && item != "false") {
      throw user_error(fields.label("wraps"), "true or false for each axis", item,
                       "Write [true, false] for a ring and a line.");
    }
    hardware.wraps.push_back(item == "true");
  }
  if (hardware.wraps.size() != hardware.torus.size()) {
    throw user_error(fields.label("wraps"),
                     fmt::format("{} values, one for each axis of torus", hardware.torus.size()),
                     fmt::format("{}", hardware.wraps.size()), "Add or take out values.");
  }
}

}  // namespace

std::string_view name_of(MachineKind kind) {
  switch (kind) {
    case MachineKind::kTpu:
      return "tpu";
    case MachineKind::kGpu:
      return "gpu";
    case MachineKind::kCpu:
      return "cpu";
  }
  return "?";
}

Hardware load_hardware(const std::string& name, std::span<const std::string> overrides) {
  const std::vector<std::string> known = hardware_names();
  if (!name.ends_with(".yml") && std::find(known.begin(), known.end(), name) == known.end()) {
    throw user_error("hardware", join_with_or(known), name.empty() ? "nothing" : name,
                     "Give one of them, or a file of your own that ends in .yml.");
  }
  Fields fields(plan_file("hardware", name));
  fields.override_with(overrides);
  Hardware hardware;
  hardware.name = name;
  const std::string kind = fields.choice("kind", {"tpu", "gpu", "cpu"});
  hardware.kind = kind == "tpu"   ? MachineKind::kTpu
                  : kind == "gpu" ? MachineKind::kGpu
                                  : MachineKind::kCpu;
  hardware.calibration = fields.text("calibration");
  hardware.chips = fields.whole("chips", 1, kMostChips);
  hardware.tflops = fields.number("tflops", kLeastRate, kMostRate);
  hardware.fp8_tflops = fields.number("fp8_tflops", 0, kMostRate);
  hardware.fp32_tflops = fields.number("fp32_tflops", 0, kMostRate);
  hardware.cores = fields.whole("cores", 1, 100000);
  hardware.memory_gib = fields.number("memory_gib", kLeastRate, kMostRate);
  hardware.memory_gb_per_second = fields.number("memory_gb_per_second", kLeastRate, kMostRate);
  if (hardware.kind == MachineKind::kTpu) {
    read_torus(fields, hardware);
    hardware.link_gb_per_second = fields.number("link_gb_per_second", kLeastRate, kMostRate);
  } else {
    hardware.chips_per_node = fields.whole("chips_per_node", 1, kMostChips);
    hardware.node_gb_per_second = fields.number("node_gb_per_second", kLeastRate, kMostRate);
    hardware.network_gb_per_second = fields.number("network_gb_per_second", kLeastRate, kMostRate);
    hardware.cores_in_all = hardware.chips * hardware.cores;
    if (hardware.kind == MachineKind::kCpu) hardware.rates = read_cpu_rates(fields);
    if (hardware.rates) hardware.rates->cores_per_host = hardware.chips_per_node * hardware.cores;
  }
  fields.refuse_rest();
  return hardware;
}

std::vector<std::string> hardware_names() {
  return plan_file_names("hardware");
}

}  // namespace odyssey
