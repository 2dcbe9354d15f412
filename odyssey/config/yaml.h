// SPDX-License-Identifier: Apache-2.0
// Reads flat yml files: `key: value` lines, nothing nested. Values stay text; what they mean is the
// business of value.h. A file may name another with `base_config: other.yml`, whose values it
// builds on.
#pragma once
#include <string>
#include <vector>

namespace odyssey {

struct YamlEntry {
  std::string key, text;  // a null value is empty text, a list is [a,b]
  int line = 0;           // counted from 1
};

struct YamlFile {
  std::string path;
  std::vector<YamlEntry> entries;  // in the order of the file; no key twice; without base_config
};

// The file and those it builds on, the deepest base first: later files override earlier ones.
// Throws UserError that names file and line.
std::vector<YamlFile> read_yaml(const std::string& path);

}  // namespace odyssey
