// SPDX-License-Identifier: Apache-2.0
// Cuts whole rows of tokens into the parts that ranks hold, and puts such parts together again.
#pragma once
#include <cstdint>
#include <span>

#include "odyssey/sequence/block_mask.h"

namespace odyssey {

// out[i] = row[position of storage row i]; out has count_rows(runs) values.
void take_rows(std::span<const Run> runs, std::span<const int32_t> row, std::span<int32_t> out);

}  // namespace odyssey
