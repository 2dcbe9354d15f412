// SPDX-License-Identifier: Apache-2.0
#include "odyssey/plan/fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include <fmt/core.h>

#include "odyssey/base/error.h"
#include "odyssey/config/spelling.h"
#include "odyssey/config/yaml.h"

namespace odyssey {
namespace {

template <class Number>
std::optional<Number> parse(const std::string& text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

std::string shown(const std::string& text) {
  constexpr size_t kMost = 100;
  if (text.empty()) return "nothing";
  return text.size() > kMost ? text.substr(0, kMost) + "..." : text;
}

}  // namespace

std::string plan_folder(const std::string& folder) {
  const std::string here = "configs/" + folder;
  std::error_code error;
  if (std::filesystem::is_directory(here, error)) return here;
  return std::string(ODYSSEY_SOURCE_DIR) + "/" + here;
}

std::string plan_file(const std::string& folder, const std::string& name) {
  if (name.ends_with(".yml")) return name;
  return fmt::format("{}/{}.yml", plan_folder(folder), name);
}

std::vector<std::string> plan_file_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(plan_folder(folder), error)) {
    if (entry.path().extension() == ".yml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Fields::Fields(const std::string& path) : path_(path) {
  int order = 0;
  for (const YamlFile& file : read_yaml(path)) {
    for (const YamlEntry& entry : file.entries) {
      fields_[entry.key] = {entry.text, fmt::format("{}:{}: ", file.path, entry.line), order++};
    }
  }
}

void Fields::override_with(std::span<const std::string> words) {
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw user_error("field of a machine", "FIELD=VALUE", shown(word), "Write it so.");
    }
    const std::string name = word.substr(0, equals);
    Field& field = fields_[name];
    field.text = word.substr(equals + 1);
    field.where = "";
  }
}

std::string Fields::label(const std::string& name) const {
  const auto found = fields_.find(name);
  if (found == fields_.end()) return fmt::format("{}: {}", path_, name);
  return found->second.where + name;
}

std::string Fields::text(const std::string& name) {
  asked_.push_back(name);
  const auto found = fields_.find(name);
  if (found == fields_.end()) {
    throw user_error(label(name), "this field", "a file without it",
                     fmt::format("Add a line '{}: value'.", name));
  }
  return found->second.text;
}

std::string Fields::choice(const std::string& name, const std::vector<std::string>& accepted) {
  const std::string value = text(name);
  if (std::find(accepted.begin(), accepted.end(), value) != accepted.end()) return value;
  throw user_error(label(name), join_with_or(accepted), shown(value), "There is nothing else.");
}

double Fields::number(const std::string& name, double least, double most) {
  const std::string value = text(name);
  const std::optional<double> number = parse<double>(value);
  if (number && *number >= least && *number <= most) return *number;
  throw user_error(label(name), fmt::format("a number from {} to {}", least, most), shown(value),
                   "Its unit stands in docs/planner.md.");
}

int64_t Fields::whole(const std::string& name, int64_t least, int64_t most) {
  const std::string value = text(name);
  const std::optional<int64_t> number = parse<int64_t>(value);
  if (number && *number >= least && *number <= most) return *number;
  throw user_error(label(name), fmt::format("a whole number from {} to {}", least, most),
                   shown(value), "Its unit stands in docs/planner.md.");
}

std::vector<std::string> Fields::list(const std::string& name) {
  const std::string value = text(name);
  if (value.size() < 2 || value.front() != '[' || value.back() != ']') {
    throw user_error(label(name), "a list such as [a, b]", shown(value), "Write it in brackets.");
  }
  std::vector<std::string> items;
  std::string item;
  for (const char c : value.substr(1, value.size() - 2)) {
    if (c == ',') {
      items.push_back(item);
      item.clear();
    } else if (!(c == ' ' && item.empty())) {
      item += c;
    }
  }
  if (!item.empty()) items.push_back(item);
  return items;
}

std::vector<std::pair<std::string, std::string>> Fields::rest() {
  std::vector<std::pair<int, std::string>> names;
  for (const auto& [name, field] : fields_) {
    if (std::find(asked_.begin(), asked_.end(), name) == asked_.end()) {
      names.emplace_back(field.order, name);
    }
  }
  std::sort(names.begin(), names.end());
  std::vector<std::pair<std::string, std::string>> rest;
  for (const auto& [order, name] : names) rest.emplace_back(name, text(name));
  return rest;
}

void Fields::refuse_rest() const {
  for (const auto& [name, field] : fields_) {
    if (std::find(asked_.begin(), asked_.end(), name) != asked_.end()) continue;
    const std::string nearest = nearest_name(name, asked_);
    throw user_error(field.where + "unknown field", join_with_or(asked_), shown(name),
                     nearest.empty() ? "Take it out." : fmt::format("Did you mean {}?", nearest));
  }
}

}  // namespace odyssey
