// SPDX-License-Identifier: Apache-2.0
#include "odyssey/schedule/block_buffers.h"

#include <algorithm>

namespace odyssey {

namespace {

// Of these lists.
BlockBuffers buffers_of(const AttentionLayout& layout, int r, const std::vector<Step>& forward,
                        const std::vector<Step>& backward) {
  BlockBuffers buffers;
  buffers.own = buffers.own_gradient = layout.placement.ring_block_rows(r);
  const auto grow = [](int64_t& size, const std::vector<RowRange>& rows) {
    size = std::max(size, count_rows(rows));
  };
  for (const std::vector<Step>* steps : {&forward, &backward}) {
    size_t shifts = 0, gradients = 0;  // parts that arrived, parts that were sent home
    for (const Step& step : *steps) {
      if (step.kind == StepKind::kShift || step.kind == StepKind::kGather) {
        // Of a whole block documents may leave a part.
        if (layout.follows_documents() || !is_whole_block(step.rows, buffers.own))
          grow(buffers.packed, step.rows);
        if (step.arriving_rows.empty()) continue;
        if (step.kind == StepKind::kGather) {
          buffers.gathered += count_rows(step.arriving_rows);
        } else {
          grow(buffers.travelling[shifts++ % 2], step.arriving_rows);
        }
      } else if (step.kind == StepKind::kShiftGradient) {
        if (!step.rows.empty()) grow(buffers.partial_gradient[gradients++ % 2], step.rows);
        grow(buffers.arriving_gradient, step.arriving_rows);
      }
    }
  }
  return buffers;
}

}  // namespace

bool is_whole_block(const std::vector<RowRange>& rows, int64_t block_rows) {
  return count_rows(rows) == block_rows;
}

BlockBuffers block_buffers(const AttentionLayout& layout, int r, int u) {
  // Documents only take rows and hops away from the list of one document a row. Where a row of one
  // document sits does not bound where others do: there every rank may need every row.
  AttentionLayout any = of_batch(layout, {});
  if (layout.placement.kind() == PlacementKind::kPerDocument) any.kind = MaskKind::kFull;
  BlockBuffers buffers =
      buffers_of(any, r, forward_schedule(any, r, u), backward_schedule(any, r, u));
  if (!layout.follows_documents()) return buffers;
  // A hop that is left out moves those behind it to the other buffer.
  const auto level = [](std::array<int64_t, 2>& pair) {
    pair[0] = pair[1] = std::max(pair[0], pair[1]);
  };
  level(buffers.travelling);
  level(buffers.partial_gradient);
  return buffers;
}

BlockBuffers block_buffers(const AttentionLayout& layout, std::span<const MaskRule> masks, int r,
                           int u) {
  if (masks.empty()) return block_buffers(layout, r, u);
  BlockBuffers most;
  for (const MaskRule& mask : masks) {
    const BlockBuffers one = block_buffers(with_mask(layout, mask), r, u);
    for (int64_t BlockBuffers::*size :
         {&BlockBuffers::own, &BlockBuffers::gathered, &BlockBuffers::packed,
          &BlockBuffers::own_gradient, &BlockBuffers::arriving_gradient}) {
      most.*size = std::max(most.*size, one.*size);
    }
    for (size_t turn : {0, 1}) {
      most.travelling[turn] = std::max(most.travelling[turn], one.travelling[turn]);
      most.partial_gradient[turn] =
          std::max(most.partial_gradient[turn], one.partial_gradient[turn]);
    }
  }
  return most;
}

int64_t most_block_buffer_bytes(const AttentionLayout& layout, std::span<const MaskRule> masks) {
  constexpr int kMostLists = 16;
  int64_t row_elements = 0;
  int widest = 0;  // a Ulysses rank with most key/value heads
  for (int u = 0; u < layout.ulysses_size(); ++u) {
    if (layout.row_elements(u) > row_elements) widest = u;
    row_elements = std::max(row_elements, layout.row_elements(u));
  }
  int64_t most = 0;
  const int ring = layout.ring_size(), lists = std::min(ring, kMostLists);
  for (int i = 0; i < lists; ++i) {
    const int r = lists == 1 ? 0 : static_cast<int>(int64_t{i} * (ring - 1) / (lists - 1));
    const BlockBuffers buffers = block_buffers(layout, masks, r, widest);
    most = std::max(
        most, (buffers.rows() * layout.element_bytes + buffers.gradient_rows() * 4) * row_elements);
  }
  return most;
}

}  // namespace odyssey
