// SPDX-License-Identifier: Apache-2.0
// The pairs that the attention kernels here work on: what a mask leaves of a block, in whole tiles.
#pragma once
#include <cstdint>
#include <span>

#include "odyssey/sequence/block_mask.h"

namespace odyssey {

// (query, key) pairs of one head in the tiles of `query_tile` queries x 64 keys that the mask does
// not hide: what a kernel works on. A tile is hidden where the bounds of its positions say so.
// Takes a few operations for each query tile and run of keys.
int64_t visible_tile_pairs(std::span<const Run> queries, std::span<const Run> keys, MaskKind kind,
                           int64_t window, int64_t query_tile);

}  // namespace odyssey
