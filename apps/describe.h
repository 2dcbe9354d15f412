// SPDX-License-Identifier: Apache-2.0
// The words in which several commands speak of a configuration.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "odyssey/config/run_config.h"

namespace odyssey {

std::string_view name_of(DataType type);

// "usp: ring 4 x ulysses 2, dual_chunk_swap, 8 ranks"; data and fsdp where they are not 1.
// "causal", or "13 x local_sliding, 13 x causal": layers that have the mask.
std::string describe_masks(const ModelConfig& model);
std::string describe(const ParallelConfig& parallel);

// One line each, with line ends: "note: ..." for the notes, and the keys that have no effect here.
std::string describe_notes(const RunConfig& config);

// "512 B", "1.50 MB", "12.0 GB" (powers of 1000).
std::string readable_bytes(int64_t bytes);
// "950", "12.3 thousand", "1.24 million", "8.03 billion".
std::string readable_count(int64_t count);

}  // namespace odyssey
