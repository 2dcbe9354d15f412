// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "odyssey/base/error.h"
#include "odyssey/config/resolve.h"
#include "odyssey/sequence/balance.h"

namespace odyssey {
namespace {

constexpr int kAxes = 4;
constexpr int kData = 0, kFsdp = 1, kContext = 2, kUlysses = 3;
constexpr std::array<const char*, kAxes> kNames = {"ici_data_parallelism", "ici_fsdp_parallelism",
                                                   "ici_context_parallelism",
                                                   "ici_context_usp_ulysses_parallelism"};
constexpr const char* kRingNodes = "dcn_context_parallelism";
constexpr const char* kUlyssesNodes = "dcn_context_usp_ulysses_parallelism";
constexpr int64_t kMostRanks = 1'000'000;

using Sizes = std::array<int64_t, kAxes>;

Strategy strategy_of(const std::string& word) {
  if (word == "ring") return Strategy::kRing;
  if (word == "ulysses") return Strategy::kUlysses;
  if (word == "usp") return Strategy::kUsp;
  ODYSSEY_CHECK(word == "all_gather", "strategy {}", word);
  return Strategy::kAllGather;
}

// "ici_data_parallelism=2 x ici_fsdp_parallelism=-1 x ..."; nodes only where there are several.
std::string describe(const Settings& settings, const Sizes& sizes) {
  std::string text;
  for (int axis = 0; axis < kAxes; ++axis) {
    text += fmt::format("{}{}={}", axis == 0 ? "" : " x ", kNames[axis], sizes[axis]);
  }
  for (const char* name : {kRingNodes, kUlyssesNodes}) {
    const int64_t nodes = settings.integer(name);
    if (nodes != 1) text += fmt::format(" x {}={}", name, nodes);
  }
  return text;
}

[[noreturn]] void refuse_too_many(const char* name, int64_t size) {
  throw user_error("product of the axes", fmt::format("at most {} ranks", kMostRanks),
                   fmt::format("more ({}={})", name, size), "Take smaller axes.");
}

// Replaces -1 by what is left of the ranks, and checks the product.
Sizes resolve_axes(const Settings& settings, int64_t available_ranks) {
  Sizes sizes;
  int open = -1;  // the axis of size -1
  int64_t product = 1;
  for (const char* name : {kRingNodes, kUlyssesNodes}) {
    product *= settings.integer(name);
    if (product > kMostRanks) refuse_too_many(name, settings.integer(name));
  }
  for (int axis = 0; axis < kAxes; ++axis) {
    sizes[axis] = settings.integer(kNames[axis]);
    if (sizes[axis] == -1) {
      if (open >= 0) {
        throw user_error(settings.label(kNames[axis]), "at most one axis of -1",
                         fmt::format("-1 for {} too", kNames[open]),
                         fmt::format("Give {}=1, or the size that is meant.", kNames[open]));
      }
      open = axis;
    } else {
      product *= sizes[axis];  // each factor is at most 10^6, so the check below comes in time
    }
    if (product > kMostRanks) refuse_too_many(kNames[axis], sizes[axis]);
  }
  const Sizes given = sizes;
  if (open >= 0) sizes[open] = 1;
  if (available_ranks == 0) return sizes;
  if (open >= 0) {
    sizes[open] = available_ranks / product;
    if (sizes[open] >= 1 && sizes[open] * product == available_ranks) return sizes;
    throw user_error("product of the axes",
                     fmt::format("a divisor of the {} ranks", available_ranks),
                     fmt::format("{} ({})", product, describe(settings, given)),
                     fmt::format("Start a multiple of {} ranks, or change an axis.", product));
  }
  if (product != available_ranks) {
    throw user_error("product of the axes", fmt::format("the {} ranks", available_ranks),
                     fmt::format("{} ({})", product, describe(settings, given)),
                     fmt::format("Start {} ranks, or give one axis -1 to take the rest.", product));
  }
  return sizes;
}

// The keys that only usp knows.
void refuse_keys_of_usp(const Settings& settings, const Sizes& sizes, Strategy strategy) {
  if (strategy == Strategy::kUsp) return;
  const std::string& word = settings.text("context_parallel_strategy");
  const auto refuse_size = [&](const char* name, const char* other, int64_t size) {
    if (size == 1) return;
    throw user_error(
        settings.label(name), fmt::format("1 with context_parallel_strategy={}", word),
        fmt::format("{}", size),
        fmt::format("Give context_parallel_strategy=usp, or set the degree of {} with {}.", word,
                    other));
  };
  refuse_size(kNames[kUlysses], kNames[kContext], sizes[kUlysses]);
  refuse_size(kUlyssesNodes, kRingNodes, settings.integer(kUlyssesNodes));
  const std::string& outer = settings.text("context_parallel_outer");
  if (outer != "ring" || settings.at("context_parallel_outer").source == Source::kCommandLine) {
    throw user_error(settings.label("context_parallel_outer"), "context_parallel_strategy=usp",
                     fmt::format("{} with context_parallel_strategy={}", outer, word),
                     "Take this key out: the other strategies have one exchange each.");
  }
}

void split_context(const Settings& settings, const Sizes& sizes, ParallelConfig& parallel) {
  refuse_keys_of_usp(settings, sizes, parallel.strategy);
  const int context_nodes = static_cast<int>(settings.integer(kRingNodes));
  const int context = static_cast<int>(sizes[kContext]) * context_nodes;
  if (parallel.strategy == Strategy::kUlysses) {
    parallel.ulysses_size = context;
    parallel.ulysses_nodes = context_nodes;
    return;
  }
  parallel.ring_size = context;
  parallel.ring_nodes = context_nodes;
  parallel.ulysses_nodes = static_cast<int>(settings.integer(kUlyssesNodes));
  parallel.ulysses_size = static_cast<int>(sizes[kUlysses]) * parallel.ulysses_nodes;
  parallel.outer_gather = parallel.strategy == Strategy::kAllGather ||
                          settings.text("context_parallel_outer") == "all_gather";
}

// Even for rows of many documents: docs/strategies.md has the counts. Where only some layers have
// windows, the others have nearly all the work.
PlacementKind packed_placement(const ModelConfig& model) {
  const auto has_window = [](const MaskRule& mask) {
    return mask.kind == MaskKind::kLocalSliding || mask.kind == MaskKind::kChunk;
  };
  return std::ranges::all_of(model.masks, has_window) ? PlacementKind::kStriped
                                                      : PlacementKind::kPerDocument;
}

PlacementKind choose_placement(const Settings& settings, const ParallelConfig& parallel,
                               const ModelConfig& model, const RowShape& row,
                               std::vector<std::string>& notes) {
  const bool wants_balance = settings.flag("context_parallel_load_balance");
  const bool is_full = std::ranges::all_of(
      model.masks, [](const MaskRule& mask) { return mask.kind == MaskKind::kFull; });
  const std::string& order = settings.text("context_parallel_reorder_strategy");
  // A default, or a base.yml that repeats it, is no wish.
  const bool is_explicit = wants_balance && (settings.at("context_parallel_load_balance").source ==
                                                 Source::kCommandLine ||
                                             order != "auto");
  if (parallel.strategy == Strategy::kUlysses && is_explicit) {
    notes.emplace_back(
        "ulysses keeps the placement contiguous: every rank has equal work already, so "
        "context_parallel_load_balance and context_parallel_reorder_strategy change nothing");
  } else if (is_full && is_explicit && order != "per_document" &&
             !(order == "auto" && row.several_documents)) {
    notes.emplace_back(
        "attention_type=full keeps the placement contiguous: every rank has equal work already, so "
        "context_parallel_load_balance and context_parallel_reorder_strategy change nothing");
  }
  if (!wants_balance && order != "auto") {
    notes.push_back(
        fmt::format("context_parallel_reorder_strategy={} changes nothing with "
                    "context_parallel_load_balance=false",
                    order));
  }
  if (!wants_balance || parallel.ring_size == 1) return PlacementKind::kContiguous;
  if (order == "per_document") return PlacementKind::kPerDocument;
  if (order == "auto" && row.several_documents) return packed_placement(model);
  if (is_full) return PlacementKind::kContiguous;
  if (order == "striped") return PlacementKind::kStriped;
  if (order == "dual_chunk_swap") return PlacementKind::kDualChunkSwap;
  return cheapest_placement(row.length, parallel.ring_size, mask_shares(model));
}

}  // namespace

std::string_view name_of(Strategy strategy) {
  switch (strategy) {
    case Strategy::kAllGather:
      return "all_gather";
    case Strategy::kRing:
      return "ring";
    case Strategy::kUlysses:
      return "ulysses";
    case Strategy::kUsp:
      return "usp";
  }
  return "?";
}

ParallelConfig resolve_parallel(const Settings& settings, const ModelConfig& model,
                                const RowShape& row, int64_t available_ranks,
                                std::vector<std::string>& notes) {
  if (available_ranks < 0 || available_ranks > kMostRanks) {
    throw user_error("ranks", fmt::format("1 to {}", kMostRanks),
                     fmt::format("{}", available_ranks), "Start another number of ranks.");
  }
  const Sizes sizes = resolve_axes(settings, available_ranks);
  ParallelConfig parallel;
  parallel.strategy = strategy_of(settings.text("context_parallel_strategy"));
  parallel.data = static_cast<int>(sizes[kData]);
  parallel.fsdp = static_cast<int>(sizes[kFsdp]);
  split_context(settings, sizes, parallel);
  parallel.placement = choose_placement(settings, parallel, model, row, notes);
  return parallel;
}

}  // namespace odyssey
