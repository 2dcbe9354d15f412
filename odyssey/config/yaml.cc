// SPDX-License-Identifier: Apache-2.0
// The only file that includes yaml-cpp.
#include "odyssey/config/yaml.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include "odyssey/base/error.h"

namespace odyssey {
namespace {

int line_of(const YAML::Node& node) {
  return node.Mark().line + 1;
}

std::string read_text(const std::string& path) {
  std::error_code error;
  const std::string remedy = "Check the path.";
  if (std::filesystem::is_directory(path, error)) {
    throw user_error(path, "a yml file", "a folder", remedy);
  }
  if (!std::filesystem::exists(path, error)) {
    throw user_error(path, "a yml file", "no such file", remedy);
  }
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) throw user_error(path, "a yml file", "a file that cannot be read", remedy);
  return text;
}

// yaml-cpp ends an open quote at the end of the file in silence, with all later keys inside. So a
// quote must close in its own line.
void check_quote(const YAML::Node& scalar, const std::vector<std::string>& lines,
                 const std::string& place) {
  const YAML::Mark mark = scalar.Mark();
  if (mark.line < 0 || mark.line >= static_cast<int>(lines.size())) return;
  const std::string& line = lines[mark.line];
  if (mark.column < 0 || mark.column >= static_cast<int>(line.size())) return;
  const char quote = line[mark.column];
  if (quote != '"' && quote != '\'') return;
  if (line.find(quote, mark.column + 1) == std::string::npos) {
    throw user_error(place, "a quote that ends in its own line", "an open quote",
                     fmt::format("Close it with {}.", quote));
  }
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines(1);
  for (char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  return lines;
}

// LoadAll and not Load, which would leave out all documents but the first.
YAML::Node parse(const std::string& path, const std::string& text) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1) {
      throw user_error(path, "one yml document", fmt::format("{}", documents.size()),
                       "Take out the lines of '---'.");
    }
    return documents.empty() ? YAML::Node() : documents[0];
  } catch (const YAML::Exception& error) {
    throw user_error(fmt::format("{}:{}", path, error.mark.line + 1), "yml", error.msg,
                     "Write one 'key: value' a line.");
  }
}

// Text of a scalar, or [a,b] of a list of scalars; everything else is refused.
std::string text_of(const YAML::Node& node, const std::vector<std::string>& lines,
                    const std::string& place) {
  if (node.IsScalar()) {
    check_quote(node, lines, place);
    return node.Scalar();
  }
  if (node.IsNull()) return "";
  const bool is_flat =
      node.IsSequence() &&
      std::all_of(node.begin(), node.end(), [](const auto& item) { return item.IsScalar(); });
  if (!is_flat) {
    throw user_error(place, "one value", "nested values", "Configurations are flat: 'key: value'.");
  }
  std::string list = "[";
  for (const YAML::Node& item : node) {
    if (list.size() > 1) list += ",";
    list += text_of(item, lines, place);
  }
  list += "]";
  return list;
}

YamlFile read_file(const std::string& path, std::string& base) {
  YamlFile file;
  file.path = path;
  const std::string text = read_text(path);
  const std::vector<std::string> text_lines = split_lines(text);
  const YAML::Node root = parse(path, text);
  if (root.IsNull()) return file;
  if (!root.IsMap()) {
    throw user_error(fmt::format("{}:{}", path, line_of(root)), "'key: value' lines",
                     root.IsSequence() ? "a list" : "a single value",
                     "Write one 'key: value' a line.");
  }
  std::map<std::string, int> lines;
  // yaml-cpp keeps both of two equal keys in the list it walks, and looks up the first in silence.
  for (const auto& item : root) {
    const int line = line_of(item.first);
    const std::string place = fmt::format("{}:{}", path, line);
    if (!item.first.IsScalar()) {
      throw user_error(place, "a key", "nested values", "Configurations are flat: 'key: value'.");
    }
    YamlEntry entry{item.first.Scalar(),
                    text_of(item.second, text_lines, place + ": " + item.first.Scalar()), line};
    const auto [earlier, is_new] = lines.emplace(entry.key, line);
    if (!is_new) {
      throw user_error(fmt::format("{}: {}", place, entry.key), "each key once",
                       fmt::format("it again (first in line {})", earlier->second),
                       "Take one of the two out.");
    }
    if (entry.key == "base_config") {
      base = entry.text;
    } else {
      file.entries.push_back(std::move(entry));
    }
  }
  return file;
}

}  // namespace

std::vector<YamlFile> read_yaml(const std::string& path) {
  std::vector<YamlFile> files;
  std::vector<std::filesystem::path> seen;
  std::string next = path;
  while (!next.empty()) {
    std::error_code error;
    const std::filesystem::path real = std::filesystem::weakly_canonical(next, error);
    if (std::find(seen.begin(), seen.end(), real) != seen.end()) {
      throw user_error(files.back().path, "a base_config that does not lead back",
                       fmt::format("{}, which builds on this file", next),
                       "Take one base_config out.");
    }
    seen.push_back(real);
    std::string base;
    files.push_back(read_file(next, base));
    next = base.empty() ? "" : (std::filesystem::path(next).parent_path() / base).string();
  }
  std::reverse(files.begin(), files.end());
  return files;
}

}  // namespace odyssey
