// SPDX-License-Identifier: Apache-2.0
// The parts of make_run_config: each turns some settings into one struct of the RunConfig and
// checks how they fit together. Only run_config.cc, plan_config.cc and resolve_*.cc include this.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "odyssey/config/run_config.h"
#include "odyssey/config/settings.h"

namespace odyssey {

// What is known of a row before there are any data.
struct RowShape {
  int64_t length = 0;              // S; 0: not known yet
  bool several_documents = false;  // rows are packed
};

// Axes, strategy and placement, from the masks of all layers. Adds to `notes` what the user should
// know.
ParallelConfig resolve_parallel(const Settings& settings, const ModelConfig& model,
                                const RowShape& row, int64_t available_ranks,
                                std::vector<std::string>& notes);

// Fills in data type, masks, cap and scale: what an attention call needs beside shapes.
void resolve_attention(const Settings& settings, ModelConfig& model,
                       std::vector<std::string>& notes);

// Fills in the shape of the decoder.
void resolve_model(const Settings& settings, ModelConfig& model);

// All of it.
RunConfig resolve_run(const Settings& settings, int64_t available_ranks);

}  // namespace odyssey
