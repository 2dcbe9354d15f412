// SPDX-License-Identifier: Apache-2.0
// Fields: the `name: value` lines of a data file of the planner, read one by one with their checks.
// A field that nobody asked for is refused, so that none is dropped in silence.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace odyssey {

// Where `folder` (such as "hardware") stands: configs/ of the working directory, or else of the
// source tree this program was built from.
std::string plan_folder(const std::string& folder);
// configs/FOLDER/NAME.yml; `name` itself where it ends in .yml.
std::string plan_file(const std::string& folder, const std::string& name);
// Names of the files of that folder without .yml, in order.
std::vector<std::string> plan_file_names(const std::string& folder);

class Fields {
 public:
  // Throws UserError where the file is no flat yml.
  explicit Fields(const std::string& path);
  // Words FIELD=VALUE; each names a field that somebody asks for.
  void override_with(std::span<const std::string> words);

  bool has(const std::string& name) const { return fields_.contains(name); }
  // Each throws UserError where the field is missing or no such value.
  std::string text(const std::string& name);
  std::string choice(const std::string& name, const std::vector<std::string>& accepted);
  double number(const std::string& name, double least, double most);
  int64_t whole(const std::string& name, int64_t least, int64_t most);
  std::vector<std::string> list(const std::string& name);

  // All that is there and was not asked for yet, in the order of the file.
  std::vector<std::pair<std::string, std::string>> rest();
  // Throws UserError where rest() is not empty, naming the known fields.
  void refuse_rest() const;

  // "configs/hardware/x.yml:7: chips", for messages.
  std::string label(const std::string& name) const;
  const std::string& path() const { return path_; }

 private:
  struct Field {
    std::string text, where;
    int order = 0;
  };
  std::string path_;
  std::map<std::string, Field> fields_;
  std::vector<std::string> asked_;  // names, in the order of the questions
};

}  // namespace odyssey
