// SPDX-License-Identifier: Apache-2.0
#include "apps/describe.h"

#include <fmt/core.h>
#include <fmt/format.h>

namespace odyssey {
namespace {

// Three digits that count.
std::string three_digits(double value) {
  return fmt::format("{:.{}f}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

}  // namespace

std::string_view name_of(DataType type) {
  return type == DataType::kFloat32 ? "float32" : "bfloat16";
}

std::string describe_masks(const ModelConfig& model) {
  const std::vector<MaskShare> shares = mask_shares(model);
  if (shares.size() == 1) return std::string(name_of(shares[0].mask.kind));
  std::string text;
  for (const MaskShare& share : shares) {
    text +=
        fmt::format("{}{} x {}", text.empty() ? "" : ", ", share.layers, name_of(share.mask.kind));
  }
  return text;
}

std::string describe(const ParallelConfig& parallel) {
  std::string text{name_of(parallel.strategy)};
  if (parallel.strategy == Strategy::kUsp) {
    text += fmt::format(": ring {} x ulysses {}", parallel.ring_size, parallel.ulysses_size);
  } else {
    text += fmt::format(" {}", parallel.ring_size * parallel.ulysses_size);
  }
  if (parallel.strategy == Strategy::kUsp && parallel.outer_gather) text += ", outer all_gather";
  if (parallel.ring_nodes != 1) text += fmt::format(", ring over {} nodes", parallel.ring_nodes);
  if (parallel.ulysses_nodes != 1) {
    text += fmt::format(", ulysses over {} nodes", parallel.ulysses_nodes);
  }
  text += fmt::format(", {}", name_of(parallel.placement));
  if (parallel.data != 1) text += fmt::format(", data {}", parallel.data);
  if (parallel.fsdp != 1) text += fmt::format(", fsdp {}", parallel.fsdp);
  return text + fmt::format(", {} {}", parallel.ranks(), parallel.ranks() == 1 ? "rank" : "ranks");
}

std::string describe_notes(const RunConfig& config) {
  std::string text;
  for (const std::string& note : config.notes) text += fmt::format("note: {}\n", note);
  if (!config.keys_without_effect.empty()) {
    text += fmt::format("note: no effect here: {}\n", fmt::join(config.keys_without_effect, ", "));
  }
  return text;
}

std::string readable_bytes(int64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  int unit = 0;
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  while (value >= 999.5) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{} {}", three_digits(value), kUnits[unit]);
}

std::string readable_count(int64_t count) {
  if (count < 1000) return fmt::format("{}", count);
  const auto value = static_cast<double>(count);
  if (value < 999.5e3) return three_digits(value / 1e3) + " thousand";
  if (value < 999.5e6) return three_digits(value / 1e6) + " million";
  return three_digits(value / 1e9) + " billion";
}

}  // namespace odyssey
