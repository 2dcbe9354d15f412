// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_layouts.h"

#include <algorithm>

#include <fmt/format.h>

#include "apps/describe.h"
#include "odyssey/base/error.h"
#include "odyssey/config/spelling.h"

namespace odyssey {
namespace {

// R x U of a strategy on that many ranks.
std::vector<std::pair<int, int>> sizes_of(Strategy strategy, int ranks) {
  if (strategy == Strategy::kUlysses) return {{1, ranks}};
  if (strategy != Strategy::kUsp) return {{ranks, 1}};
  std::vector<std::pair<int, int>> sizes;
  for (int ulysses = 2; ulysses <= ranks / 2; ++ulysses) {
    if (ranks % ulysses == 0) sizes.emplace_back(ranks / ulysses, ulysses);
  }
  return sizes;
}

}  // namespace

std::vector<BenchLayout> bench_layouts(int ranks, const BenchChoice& choice, MaskKind mask) {
  std::vector<BenchLayout> layouts;
  for (const Strategy strategy : choice.strategies) {
    for (const auto& [ring, ulysses] : sizes_of(strategy, ranks)) {
      if (ring == 1 || mask == MaskKind::kFull) {
        layouts.push_back({strategy, ring, ulysses, PlacementKind::kContiguous});
        continue;
      }
      for (const PlacementKind placement : choice.placements) {
        layouts.push_back({strategy, ring, ulysses, placement});
      }
    }
  }
  return layouts;
}

std::vector<std::string> words_of(const BenchLayout& layout) {
  const bool is_balanced = layout.placement != PlacementKind::kContiguous;
  // usp alone names both axes; the others have their whole degree on the first.
  const bool is_usp = layout.strategy == Strategy::kUsp;
  std::vector<std::string> words = {
      fmt::format("context_parallel_strategy={}", name_of(layout.strategy)),
      fmt::format("ici_context_parallelism={}",
                  is_usp ? layout.ring : layout.ring * layout.ulysses),
      fmt::format("ici_context_usp_ulysses_parallelism={}", is_usp ? layout.ulysses : 1),
      "ici_data_parallelism=1",
      "ici_fsdp_parallelism=1",
      fmt::format("context_parallel_load_balance={}", is_balanced),
      fmt::format("per_device_batch_size={:.12f}", 1.0 / (layout.ring * layout.ulysses))};
  words.push_back(fmt::format("context_parallel_reorder_strategy={}",
                              is_balanced ? name_of(layout.placement) : "auto"));
  return words;
}

void refuse_layout_keys(std::span<const std::string> words, const std::string& kind,
                        const std::vector<std::string>& refused) {
  const auto sets_layout = [](const std::string& key) {
    return key.starts_with("ici_") || key.starts_with("dcn_") ||
           key.starts_with("context_parallel_") || key == "per_device_batch_size" ||
           key == "max_target_length";
  };
  for (const std::string& word : words) {
    const std::string key = word.substr(0, word.find('='));
    const bool is_refused = std::find(refused.begin(), refused.end(), key) != refused.end();
    if (!sets_layout(key) && !is_refused) continue;
    throw user_error(key, fmt::format("to be left to odyssey bench {}", kind), word,
                     is_refused
                         ? fmt::format("Take it out. See odyssey bench {} --help.", kind)
                         : "Layouts come from --ranks, --strategies and --placements, lengths from "
                           "--lengths.");
  }
}

void refuse_other_keys(std::span<const std::string> words, const std::vector<std::string>& known,
                       const std::string& remedy) {
  for (const std::string& word : words) {
    const std::string name = word.substr(0, word.find('='));
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string nearest = nearest_name(name, known);
    throw user_error("key", join_with_or(known), word,
                     nearest.empty() ? remedy : fmt::format("Did you mean {}?", nearest));
  }
}

void refuse_no_layout(const std::vector<int>& ranks, const std::string& kind) {
  throw user_error("--strategies",
                   fmt::format("one that {} ranks can have", fmt::join(ranks, " or ")), "usp alone",
                   fmt::format("usp needs R x U ranks, both at least 2. See odyssey bench {} "
                               "--help.",
                               kind));
}

}  // namespace odyssey
