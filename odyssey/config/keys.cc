// SPDX-License-Identifier: Apache-2.0
#include "odyssey/config/keys.h"

#include <algorithm>
#include <cctype>

#include <fmt/core.h>

#include "odyssey/config/key_table.h"
#include "odyssey/config/spelling.h"

namespace odyssey {
namespace {

struct Spelling {
  std::string_view other, name;
};
// The spelling of MaxText's first version of USP, which published commands still use.
constexpr Spelling kOtherSpellings[] = {
    {"ici_context_ulysses_parallelism", "ici_context_usp_ulysses_parallelism"},
    {"dcn_context_ulysses_parallelism", "dcn_context_usp_ulysses_parallelism"},
};

void append(std::vector<Key>& keys, std::string_view theme, std::vector<Key> more) {
  for (Key& key : more) {
    key.theme = theme;
    keys.push_back(std::move(key));
  }
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace

std::string_view name_of(KeyType type) {
  switch (type) {
    case KeyType::kBool:
      return "bool";
    case KeyType::kInt:
      return "int";
    case KeyType::kFloat:
      return "float";
    case KeyType::kString:
      return "string";
    case KeyType::kEnum:
      return "enum";
    case KeyType::kList:
      return "list";
    case KeyType::kOptionalInt:
      return "int or None";
    case KeyType::kOptionalFloat:
      return "float or None";
  }
  return "";
}

std::string_view name_of(KeyEffect effect) {
  switch (effect) {
    case KeyEffect::kUsed:
      return "used";
    case KeyEffect::kFixed:
      return "fixed";
    case KeyEffect::kPlan:
      return "plan only";
    case KeyEffect::kNone:
      return "no effect";
  }
  return "";
}

const std::vector<Key>& all_keys() {
  static const std::vector<Key> keys = [] {
    std::vector<Key> list;
    append(list, "The run", run_keys());
    append(list, "Layout of the ranks", parallel_keys());
    append(list, "Attention", attention_keys());
    append(list, "Model", model_keys());
    append(list, "Batch and data", data_keys());
    append(list, "Optimizer and schedule", train_keys());
    append(list, "Accepted without effect", no_effect_keys());
    return list;
  }();
  return keys;
}

const Key* find_key(std::string_view name) {
  for (const Spelling& spelling : kOtherSpellings) {
    if (name == spelling.other) name = spelling.name;
  }
  for (const Key& key : all_keys()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::string nearest_key(std::string_view name) {
  std::vector<std::string> names;
  for (const Key& key : all_keys()) names.push_back(key.name);
  for (const Spelling& spelling : kOtherSpellings) names.emplace_back(spelling.other);
  return nearest_name(name, names);
}

std::string describe_keys(std::string_view word) {
  const std::string wanted = lower(word);
  size_t name_width = 0, default_width = 0;
  std::vector<const Key*> found;
  for (const Key& key : all_keys()) {
    if (lower(key.name + "\n" + key.help).find(wanted) == std::string::npos) continue;
    found.push_back(&key);
    name_width = std::max(name_width, key.name.size());
    default_width = std::max(default_width, key.default_text.size());
  }
  if (found.empty()) {
    const std::string nearest = nearest_key(word);
    return fmt::format("No key has '{}' in its name or help.{}\n", word,
                       nearest.empty() ? "" : fmt::format(" The nearest key is {}.", nearest));
  }
  std::string table;
  std::string_view theme;
  for (const Key* key : found) {
    if (key->theme != theme) {
      table += fmt::format("{}{}\n", table.empty() ? "" : "\n", key->theme);
      theme = key->theme;
    }
    table += fmt::format("  {:<{}}  {:<13}  {:<{}}  {:<9}  {}", key->name, name_width,
                         name_of(key->type), key->default_text, default_width, name_of(key->effect),
                         key->help);
    if (!key->accepted.empty()) table += fmt::format(" [{}]", join_with_or(key->accepted));
    table += "\n";
  }
  return table;
}

}  // namespace odyssey
