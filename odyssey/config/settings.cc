// SPDX-License-Identifier: Apache-2.0
#include "odyssey/config/settings.h"

#include <algorithm>

#include <fmt/core.h>

#include "odyssey/base/error.h"
#include "odyssey/config/model_presets.h"
#include "odyssey/config/yaml.h"

namespace odyssey {
namespace {

using SettingMap = std::map<std::string, Setting, std::less<>>;

struct GivenWord {
  std::string name, text, where;
};

std::string trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

// "key=value" from the command line.
GivenWord split_word(const std::string& word) {
  const std::string what = "command line";
  const size_t equals = word.find('=');
  if (equals == std::string::npos) {
    std::string key = trimmed(word), value = "value";
    if (const size_t gap = key.find_first_of(" \t:"); gap != std::string::npos) {
      value = trimmed(std::string_view(key).substr(gap + 1));
      key.resize(gap);
    }
    throw user_error(what, "key=value", word.empty() ? "an empty word" : word,
                     fmt::format("Write it as {}={}.", key.empty() ? "key" : key, value));
  }
  GivenWord given{trimmed(word.substr(0, equals)), word.substr(equals + 1), ""};
  if (given.name.empty()) {
    throw user_error(what, "key=value", word, "Write a key before the '='.");
  }
  if (given.name[0] == '-') {
    const std::string bare =
        given.name.substr(std::min(given.name.find_first_not_of('-'), given.name.size()));
    throw user_error(what, "key=value", word,
                     fmt::format("Write it without dashes: {}={}.", bare, given.text));
  }
  return given;
}

const Key& known_key(const GivenWord& given) {
  if (const Key* key = find_key(given.name)) return *key;
  const std::string nearest = nearest_key(given.name);
  throw user_error(given.where + "unknown key", "a key of configs/base.yml", given.name,
                   nearest.empty() ? "Keys are listed in configs/base.yml."
                                   : fmt::format("Did you mean {}?", nearest));
}

// One source: a file or the command line. A key may be given once; under two spellings it may be
// given twice if both agree.
SettingMap read_layer(const std::vector<GivenWord>& words, Source source, Purpose purpose) {
  SettingMap layer;
  std::map<std::string, std::string> spelled;  // key -> the name that was used
  for (const GivenWord& given : words) {
    const Key& key = known_key(given);
    Setting setting{parse_value(key, given.text, given.where, purpose), source, given.where};
    const auto earlier = layer.find(key.name);
    if (earlier == layer.end()) {
      layer.emplace(key.name, std::move(setting));
      spelled[key.name] = given.name;
      continue;
    }
    const std::string before = to_text(earlier->second.value), now = to_text(setting.value);
    if (spelled[key.name] == given.name) {
      throw user_error(given.where + given.name, "each key once",
                       fmt::format("{} and {}", before, now), "Take one of the two out.");
    }
    if (before != now) {
      throw user_error(
          given.where + given.name,
          fmt::format("the value of {}, which is the same key ({})", spelled[key.name], before),
          now, "Take one of the two out.");
    }
  }
  return layer;
}

SettingMap read_files(const std::string& yml_path, Purpose purpose) {
  SettingMap merged;
  if (yml_path.empty()) return merged;
  for (const YamlFile& file : read_yaml(yml_path)) {
    std::vector<GivenWord> words;
    for (const YamlEntry& entry : file.entries) {
      words.push_back({entry.key, entry.text, fmt::format("{}:{}: ", file.path, entry.line)});
    }
    for (auto& [name, setting] : read_layer(words, Source::kFile, purpose)) {
      merged.insert_or_assign(name, setting);
    }
  }
  return merged;
}

// The preset decides; what was given must agree. A file that only repeats the default (as base.yml
// does for all keys) asked for nothing.
void apply_preset(const SettingMap& defaults, SettingMap& given) {
  const auto value_of = [&](const char* name) {
    const auto found = given.find(name);
    return found != given.end() ? found->second : defaults.at(name);
  };
  const Setting model = value_of("model_name");
  const std::string model_name = std::get<std::string>(model.value);
  const bool may_differ = std::get<bool>(value_of("override_model_config").value);
  for (const PresetEntry& entry : model_preset(model_name, model.where)) {
    Setting preset{parse_value(*find_key(entry.key), entry.text, "preset "), Source::kPreset, ""};
    const auto found = given.find(entry.key);
    if (found == given.end()) {
      given.emplace(entry.key, std::move(preset));
      continue;
    }
    const Setting& other = found->second;
    const bool is_silent =
        other.source == Source::kFile && other.value == defaults.at(entry.key).value;
    if (is_silent || other.value == preset.value) {
      found->second = std::move(preset);
    } else if (!may_differ) {
      throw user_error(
          other.where + entry.key,
          fmt::format("{}, as model_name={} has it", to_text(preset.value), model_name),
          to_text(other.value), "Leave the key out, or give override_model_config=true.");
    }
  }
}

}  // namespace

Settings make_settings(const std::string& yml_path, std::span<const std::string> key_values,
                       bool use_preset, Purpose purpose) {
  SettingMap defaults;
  for (const Key& key : all_keys()) {
    defaults[key.name] = {parse_value(key, key.default_text, "default of "), Source::kDefault, ""};
  }
  SettingMap given = read_files(yml_path, purpose);
  std::vector<GivenWord> words;
  for (const std::string& word : key_values) words.push_back(split_word(word));
  for (auto& [name, setting] : read_layer(words, Source::kCommandLine, purpose)) {
    given.insert_or_assign(name, setting);
  }
  Settings settings;
  for (const Key& key : all_keys()) {
    const bool is_idle = key.effect == KeyEffect::kNone ||
                         (key.effect == KeyEffect::kPlan && purpose == Purpose::kRun);
    if (is_idle && given.contains(key.name)) {
      settings.without_effect_.push_back(key.name);
    }
  }
  if (use_preset) apply_preset(defaults, given);
  given.merge(defaults);  // adds only what is not there
  settings.settings_ = std::move(given);
  return settings;
}

const Setting& Settings::at(std::string_view name) const {
  const auto found = settings_.find(name);
  ODYSSEY_CHECK(found != settings_.end(), "no key {}", name);
  return found->second;
}

bool Settings::flag(std::string_view name) const {
  return std::get<bool>(at(name).value);
}

int64_t Settings::integer(std::string_view name) const {
  return std::get<int64_t>(at(name).value);
}

double Settings::real(std::string_view name) const {
  return std::get<double>(at(name).value);
}

const std::string& Settings::text(std::string_view name) const {
  return std::get<std::string>(at(name).value);
}

std::optional<double> Settings::optional_real(std::string_view name) const {
  const Value& value = at(name).value;
  if (std::holds_alternative<std::monostate>(value)) return std::nullopt;
  return std::get<double>(value);
}

std::string Settings::label(std::string_view name) const {
  const Setting& setting = at(name);
  const Key& key = *find_key(name);
  // A file that only repeats the default is not where the fault lies.
  const bool is_default = setting.value == parse_value(key, key.default_text, "");
  return fmt::format("{}{}", is_default ? "" : setting.where, name);
}

std::string Settings::canonical_text() const {
  std::string text;
  for (const Key& key : all_keys()) {
    if (key.effect != KeyEffect::kUsed) continue;
    text += fmt::format("{}={}\n", key.name, to_text(at(key.name).value));
  }
  return text;
}

}  // namespace odyssey
