// SPDX-License-Identifier: Apache-2.0
// The rows of `odyssey bench attention` and `odyssey bench step`: every layout that some ranks can
// have, and the key=value words that ask for it.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "odyssey/config/run_config.h"

namespace odyssey {

struct BenchLayout {
  Strategy strategy = Strategy::kAllGather;
  int ring = 1, ulysses = 1;  // R, U
  PlacementKind placement = PlacementKind::kContiguous;
};

// Which layouts to try.
struct BenchChoice {
  std::vector<Strategy> strategies = {Strategy::kAllGather, Strategy::kRing, Strategy::kUlysses,
                                      Strategy::kUsp};
  std::vector<PlacementKind> placements = {PlacementKind::kContiguous,
                                           PlacementKind::kDualChunkSwap};
};

// Layouts of `ranks` ranks, strategies in the order of the choice; usp with every R x U, both at
// least 2, the larger R first. With a ring of one rank and under a full mask all ranks have the
// same work, so the placement is contiguous there, once, whatever was chosen.
std::vector<BenchLayout> bench_layouts(int ranks, const BenchChoice& choice, MaskKind mask);

// Sets strategy, axes and placement. The ranks have one row of tokens together.
std::vector<std::string> words_of(const BenchLayout& layout);

// Throws UserError when a word sets a key that these rows set themselves, or one of `refused`,
// which the command has no use for. `kind`: attention or step.
void refuse_layout_keys(std::span<const std::string> words, const std::string& kind,
                        const std::vector<std::string>& refused);

// Throws UserError when a word sets a key that is not among `known`; `remedy` where none is near.
void refuse_other_keys(std::span<const std::string> words, const std::vector<std::string>& known,
                       const std::string& remedy);

// Throws UserError where no layout was left: usp alone on two ranks, say.
void refuse_no_layout(const std::vector<int>& ranks, const std::string& kind);

}  // namespace odyssey
