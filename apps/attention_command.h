// SPDX-License-Identifier: Apache-2.0
// `odyssey attention`: one attention call, safetensors files in and out.
#pragma once
#include <string>
#include <vector>

#include "apps/attention_run.h"
#include "apps/launch.h"
#include "odyssey/io/safetensors.h"

namespace odyssey {

struct AttentionCommand {
  std::string input, output;
  std::vector<std::string> key_values;
};

// Returns the exit code.
int run_attention_command(const AttentionCommand& command, const LaunchOptions& options);

// What the file asks for; `file` must outlive it. Throws UserError that names file and tensor:
// tensors that are missing or unknown, types, shapes, segment ids below 0.
AttentionProblem read_attention_problem(const SafetensorsFile& file);

}  // namespace odyssey
