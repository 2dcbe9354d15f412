// SPDX-License-Identifier: Apache-2.0
#include "odyssey/schedule/block_buffers.h"

#include <algorithm>

namespace odyssey {

namespace {

// Of the kernel calls of a list: attend steps that follow each other, up to hops_at_once of them,
// the own block alone. Where documents leave out hops, others stand side by side.
int64_t most_at_once(const AttentionLayout& layout, int r, const std::vector<Step>& steps) {
  int64_t most = layout.placement.ring_block_rows(r), rows = 0, hops = 0;
  for (const Step& step : steps) {
    const bool is_other = step.kind == StepKind::kAttend && step.block != r;
    if (!is_other || hops == layout.hops_at_once) rows = hops = 0;
    if (!is_other) continue;
    ++hops;
    rows += count_rows(step.rows);
    most = std::max(
        most, layout.follows_documents() ? layout.hops_at_once * count_rows(step.rows) : rows);
  }
  return most;
}

// Of these lists. A group begins with a transfer behind a step of another kind.
BlockBuffers buffers_of(const AttentionLayout& layout, int r, const std::vector<Step>& forward,
                        const std::vector<Step>& backward) {
  BlockBuffers buffers;
  buffers.own = buffers.own_gradient = layout.placement.ring_block_rows(r);
  for (const std::vector<Step>* steps : {&forward, &backward}) {
    size_t groups = 0, gradient_groups = 0;  // that brought rows, that sent some home
    StepKind before = StepKind::kExchangeIn;
    int64_t packed = 0, arriving = 0, leaving = 0;  // of a group so far
    const auto add_rows = [](const std::vector<RowRange>& rows, int64_t& sum, size_t& users) {
      if (sum == 0 && !rows.empty()) ++users;
      sum += count_rows(rows);
    };
    for (const Step& step : *steps) {
      const bool begins = step.kind != before;
      before = step.kind;
      // Of one piece documents may leave several.
      const int64_t to_pack =
          layout.follows_documents() || !is_one_piece(step.rows) ? count_rows(step.rows) : 0;
      if (step.kind == StepKind::kGather) {  // one at a time
        buffers.packed = std::max(buffers.packed, to_pack);
        buffers.gathered += count_rows(step.arriving_rows);
        continue;
      }
      if (step.kind != StepKind::kShift && step.kind != StepKind::kShiftGradient) continue;
      if (begins) packed = arriving = leaving = 0;
      if (step.kind == StepKind::kShift) {
        add_rows(step.arriving_rows, arriving, groups);
        packed += to_pack;
        buffers.packed = std::max(buffers.packed, packed);
        int64_t& travelling = buffers.travelling[groups % 2];
        travelling = std::max(travelling, arriving);
      } else {
        arriving += count_rows(step.arriving_rows);
        add_rows(step.rows, leaving, gradient_groups);
        buffers.arriving_gradient = std::max(buffers.arriving_gradient, arriving);
        int64_t& partial = buffers.partial_gradient[gradient_groups % 2];
        partial = std::max(partial, leaving);
      }
    }
  }
  buffers.forward_at_once =
      layout.outer_gather ? buffers.own + buffers.gathered : most_at_once(layout, r, forward);
  buffers.backward_at_once = most_at_once(layout, r, backward);
  return buffers;
}

}  // namespace

bool is_one_piece(const std::vector<RowRange>& rows) {
  return rows.size() <= 1;
}

BlockBuffers block_buffers(const AttentionLayout& layout, int r, int u) {
  // Documents only take rows and hops away from the list of one document a row. Where a row of one
  // document sits does not bound where others do: there every rank may need every row.
  AttentionLayout any = of_batch(layout, {});
  if (layout.placement.kind() == PlacementKind::kPerDocument) any.kind = MaskKind::kFull;
  BlockBuffers buffers =
      buffers_of(any, r, forward_schedule(any, r, u), backward_schedule(any, r, u));
  if (!layout.follows_documents()) return buffers;
  // A group that is left out moves those behind it to the other buffer.
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
          &BlockBuffers::own_gradient, &BlockBuffers::arriving_gradient,
          &BlockBuffers::forward_at_once, &BlockBuffers::backward_at_once}) {
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

namespace {

// Calls body(buffers) for ring ranks of Ulysses rank u.
template <class Body>
void for_ring_ranks(const AttentionLayout& layout, std::span<const MaskRule> masks, int u,
                    const Body& body) {
  constexpr int kMostLists = 16;
  const int ring = layout.ring_size(), lists = std::min(ring, kMostLists);
  for (int i = 0; i < lists; ++i) {
    const int r = lists == 1 ? 0 : static_cast<int>(int64_t{i} * (ring - 1) / (lists - 1));
    body(block_buffers(layout, masks, r, u));
  }
}

// A Ulysses rank with most key/value heads.
int widest_rank(const AttentionLayout& layout) {
  int widest = 0;
  for (int u = 0; u < layout.ulysses_size(); ++u) {
    if (layout.row_elements(u) > layout.row_elements(widest)) widest = u;
  }
  return widest;
}

}  // namespace

int64_t most_block_buffer_bytes(const AttentionLayout& layout, std::span<const MaskRule> masks) {
  const int u = widest_rank(layout);
  int64_t most = 0;
  for_ring_ranks(layout, masks, u, [&](const BlockBuffers& buffers) {
    most = std::max(most, (buffers.rows() * layout.element_bytes + buffers.gradient_rows() * 4) *
                              layout.row_elements(u));
  });
  return most;
}

RowsAtOnce most_rows_at_once(const AttentionLayout& layout, std::span<const MaskRule> masks) {
  RowsAtOnce most;
  for_ring_ranks(layout, masks, widest_rank(layout), [&](const BlockBuffers& buffers) {
    most.forward = std::max(most.forward, buffers.forward_at_once);
    most.backward = std::max(most.backward, buffers.backward_at_once);
  });
  return most;
}

}  // namespace odyssey
