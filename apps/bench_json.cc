// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_json.h"

#include <cerrno>
#include <system_error>

#include <fmt/core.h>

#include "odyssey/base/error.h"

namespace odyssey {

BenchJson::BenchJson(const std::string& path) : path_(path) {
  if (path.empty()) return;
  file_.reset(std::fopen(path.c_str(), "we"));
  if (file_) return;
  throw user_error("--json", "a file that may be written",
                   fmt::format("{} ({})", path, std::system_category().message(errno)),
                   "Make its folder or choose another file.");
}

void BenchJson::write(const JsonLine& line) {
  if (!file_) return;
  const std::string text = line.text() + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() &&
      std::fflush(file_.get()) == 0) {
    return;
  }
  throw RunError(fmt::format("cannot write {}: {}", path_, std::system_category().message(errno)));
}

}  // namespace odyssey
