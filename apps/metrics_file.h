// SPDX-License-Identifier: Apache-2.0
// The file of metrics: one line of JSON for each step, under the names that MaxText uses.
#pragma once
#include <cstdio>
#include <memory>
#include <string>

#include "odyssey/train/trainer.h"

namespace odyssey {

class MetricsFile {
 public:
  // An existing file is emptied. Throws UserError when it can't be written.
  MetricsFile(const std::string& path, std::string run_name);

  // The line is with the system when this returns. Throws RunError when it is not.
  // teraflops_per_step: of one rank.
  void write(const StepReport& report, double teraflops_per_step);

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::string path_, run_name_;
  std::unique_ptr<std::FILE, Closer> file_;
};

}  // namespace odyssey
