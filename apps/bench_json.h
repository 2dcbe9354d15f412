// SPDX-License-Identifier: Apache-2.0
// The JSON file of a benchmark: one object a line, written as soon as its row is there.
#pragma once
#include <cstdio>
#include <memory>
#include <string>

#include "odyssey/io/json.h"

namespace odyssey {

class BenchJson {
 public:
  // An empty path: no file, and write does nothing. An existing file is emptied. Throws UserError
  // when it can't be written.
  explicit BenchJson(const std::string& path);

  // The line is with the system when this returns. Throws RunError when it is not.
  void write(const JsonLine& line);

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::string path_;
  std::unique_ptr<std::FILE, Closer> file_;
};

}  // namespace odyssey
