// SPDX-License-Identifier: Apache-2.0
// Settings: the value of every key after all that may set it was heard: default, preset of the
// model, yml files, command line. Single values are checked here; how keys fit together is not.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "odyssey/config/value.h"

namespace odyssey {

enum class Source { kDefault, kPreset, kFile, kCommandLine };

struct Setting {
  Value value;
  Source source = Source::kDefault;
  std::string where;  // "file:line: " of values from a file, else empty
};

class Settings {
 public:
  bool flag(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  const std::string& text(std::string_view name) const;  // strings, enums and lists
  std::optional<double> optional_real(std::string_view name) const;

  const Setting& at(std::string_view name) const;
  // "file:line: name", or the name alone: how a message calls the key. Lines of defaults stay
  // unnamed.
  std::string label(std::string_view name) const;
  // Keys that were given and change nothing for this purpose: kNone, and kPlan in a run.
  const std::vector<std::string>& without_effect() const { return without_effect_; }
  // All used keys as "key=value\n" lines, one spelling a value.
  std::string canonical_text() const;

 private:
  friend Settings make_settings(const std::string&, std::span<const std::string>, bool, Purpose);
  std::map<std::string, Setting, std::less<>> settings_;
  std::vector<std::string> without_effect_;
};

// Reads and merges. `yml_path` may be empty. Without `use_preset` model_name is only a word.
// Throws UserError: unknown keys, keys given twice, values of the wrong type, keys against the
// preset.
Settings make_settings(const std::string& yml_path, std::span<const std::string> key_values,
                       bool use_preset, Purpose purpose = Purpose::kRun);

}  // namespace odyssey
