// SPDX-License-Identifier: Apache-2.0
// The registry: every configuration key once, with its type, default, help, check and effect.
// Names are MaxText's; the few that are Odyssey's own say so in their help.
#pragma once
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace odyssey {

enum class KeyType { kBool, kInt, kFloat, kString, kEnum, kList, kOptionalInt, kOptionalFloat };

enum class KeyEffect {
  kUsed,   // changes what a run does
  kFixed,  // known to MaxText; only the accepted values are built here, all others are refused
  kPlan,   // changes what `odyssey plan` predicts of another machine, and nothing in a run here
  kNone,   // accepted and type-checked, but there is nothing here that it could change
};

// Bounds of numbers, both included unless least_is_open.
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool least_is_open = false;
  std::optional<double> also = std::nullopt;  // one value outside that is legal, such as -1
};

struct Key {
  std::string name;
  KeyType type = KeyType::kString;
  std::string default_text;  // as base.yml spells it
  std::string help;
  KeyEffect effect = KeyEffect::kUsed;
  std::string theme;                       // the heading in base.yml
  Range range;                             // of numbers
  std::vector<std::string> accepted;       // empty: every value of the type and range
  std::vector<std::string> plan_accepted;  // further values that `odyssey plan` can price
  std::string remedy;                      // what to do instead of a value that is not accepted
};

std::string_view name_of(KeyType type);
std::string_view name_of(KeyEffect effect);

// All keys, in the order of base.yml; those without effect come last.
const std::vector<Key>& all_keys();

// The key of that name or of that other spelling (ici_context_ulysses_parallelism is the older name
// of ici_context_usp_ulysses_parallelism); nullptr where there is none.
const Key* find_key(std::string_view name);

// The nearest known key, or "".
std::string nearest_key(std::string_view name);

// A table for help: name, type, default, effect, help of the keys whose name or help has the word
// in it, whatever its case; all keys where the word is empty.
std::string describe_keys(std::string_view word);

}  // namespace odyssey
