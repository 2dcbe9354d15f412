// SPDX-License-Identifier: Apache-2.0
// For tests only: reads the JSON lines that benchmarks write.
#pragma once
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace odyssey {

// One flat JSON object whose texts hold no escapes, as the command writes it.
class Row {
 public:
  explicit Row(const std::string& line) : line_(line) {
    EXPECT_THAT(line, testing::MatchesRegex("\\{\"[^{}]*\\}"));
    static const std::regex member("\"([a-z_]+)\": ?(\"[a-z0-9_ ]*\"|[-+.0-9e]+)");
    for (std::sregex_iterator at(line.begin(), line.end(), member), end; at != end; ++at) {
      members_[(*at)[1]] = (*at)[2];
    }
  }
  bool has(const std::string& key) const { return members_.contains(key); }
  double number(const std::string& key) const {
    return has(key) ? std::strtod(members_.at(key).c_str(), nullptr) : -1;
  }
  // Without its quotes.
  std::string text(const std::string& key) const {
    const std::string quoted = has(key) ? members_.at(key) : "";
    return quoted.size() < 2 ? "" : quoted.substr(1, quoted.size() - 2);
  }
  const std::string& line() const { return line_; }

 private:
  std::string line_;
  std::map<std::string, std::string> members_;
};

inline std::vector<Row> read_rows(const std::string& path) {
  std::ifstream file(path);
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) rows.emplace_back(line);
  return rows;
}

}  // namespace odyssey
