// SPDX-License-Identifier: Apache-2.0
// The memory that the outer exchange of a schedule needs on one rank. The executor takes exactly
// this, the checker proves that the lists stay within it, and memory reports count it.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "odyssey/schedule/step.h"

namespace odyssey {

// Rows of K and V, or of dK and dV; one row has AttentionLayout::row_elements.
struct BlockBuffers {
  // In the element type: the own block; rows that arrive with one group of hops and are attended
  // to, in turn (shift); all rows that arrive (gather); own rows on their way, put together where
  // they are not neighbours.
  int64_t own = 0, gathered = 0, packed = 0;
  std::array<int64_t, 2> travelling{};
  // In fp32: the own sum; parts for the blocks of one group, in turn added to and sent home; parts
  // that come home with one group.
  int64_t own_gradient = 0, arriving_gradient = 0;
  std::array<int64_t, 2> partial_gradient{};
  // Most rows of one kernel call: the own block, or up to hops_at_once others; all of them in the
  // forward pass behind a gather. No buffer here, but the scratch of the kernels grows with them.
  int64_t forward_at_once = 0, backward_at_once = 0;

  int64_t rows() const { return own + gathered + packed + travelling[0] + travelling[1]; }
  int64_t gradient_rows() const {
    return own_gradient + arriving_gradient + partial_gradient[0] + partial_gradient[1];
  }
};

// Of ring rank r, Ulysses rank u with its forward and backward lists. Where lists follow the
// documents of each batch: enough for any.
BlockBuffers block_buffers(const AttentionLayout& layout, int r, int u);
// Enough for calls of any of these masks, one after the other; none: that of the layout.
BlockBuffers block_buffers(const AttentionLayout& layout, std::span<const MaskRule> masks, int r,
                           int u);

// Rows that leave as they lie in memory need no packing.
bool is_one_piece(const std::vector<RowRange>& rows);

// Bytes, and rows of one kernel call, of the rank that needs most, over at most 16 ring ranks
// spread over all of them (larger rings differ from rank to rank by little).
int64_t most_block_buffer_bytes(const AttentionLayout& layout,
                                std::span<const MaskRule> masks = {});
struct RowsAtOnce {
  int64_t forward = 0, backward = 0;
};
RowsAtOnce most_rows_at_once(const AttentionLayout& layout, std::span<const MaskRule> masks = {});

}  // namespace odyssey
