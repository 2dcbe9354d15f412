// SPDX-License-Identifier: Apache-2.0
// all_gather: every rank gets the parts of all ranks.
#pragma once
#include "odyssey/comm/group.h"

namespace odyssey {

// all gets the parts of ranks 0, 1, ... in this order without gaps; bytes_per_rank, equal on all
// ranks, holds their sizes. mine is the part of this rank; it may already lie at its place in all.
// A ring of P-1 shifts: only neighbours talk. Empty parts send no message.
void all_gather(Group& group, std::span<const std::byte> mine, std::span<std::byte> all,
                std::span<const int64_t> bytes_per_rank);

}  // namespace odyssey
