// SPDX-License-Identifier: Apache-2.0
// Attention over a sequence that is spread over ranks: runs the schedule of the layout, forward and
// backward. There is one executor for all strategies; what differs is the list of steps.
// Sources: Liu et al., "Ring Attention", arXiv 2310.01889; Fang & Zhao, "USP", arXiv 2405.07719.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "odyssey/base/buffer.h"
#include "odyssey/base/view.h"
#include "odyssey/comm/group.h"
#include "odyssey/context/block_exchange.h"
#include "odyssey/context/head_exchange.h"
#include "odyssey/kernels/block_attention.h"
#include "odyssey/schedule/step.h"

namespace odyssey {

struct ParallelAttentionOptions {
  float scale = 1;
  float soft_cap = 0;                // 0: none
  bool record_max_logits = false;    // for max_logits()
  std::vector<MaskRule> masks = {};  // that calls may have; empty: only that of the layout
};

// T: float or bf16, the type of q, k, v, out on the wire and in memory. One object serves all
// layers of a model in turn, whose masks may differ: forward leaves behind what the next backward
// needs. Buffers are there once, large enough for any of the masks; lists of steps and positions
// are made once for each mask, not for each layer.
template <class T>
class ParallelAttention {
 public:
  // ring and ulysses must have the sizes of the layout; both outlive the object. All memory is
  // taken here.
  ParallelAttention(const AttentionLayout& layout, const ParallelAttentionOptions& options,
                    Group& ring, Group& ulysses);

  // Documents of the rows that follow: segment ids [B, S] in natural token order, the same on every
  // rank, so nothing is exchanged for them; once a batch, not once a layer. Empty: one document a
  // row, no padding. A segmented layout then sends only what the documents leave visible. With a
  // kPerDocument placement they also say where the tokens sit: row_placements
  // (sequence/placement.h) says it to the caller.
  void set_segments(std::span<const int32_t> segments);

  // What the next forward and its backward have: options.masks[mask], the first to begin with; and
  // these sinks [H], a logit per query head that joins every softmax, or none.
  void use_mask(int64_t mask);
  void use_sinks(std::span<const float> sinks);

  // q, out: [B, T, H, D]; k, v: [B, T, K, D]; T the rows of this rank, in storage order. q and out
  // must stay as they are until backward.
  void forward(View<const T, 4> q, View<const T, 4> k, View<const T, 4> v, View<T, 4> out);
  // Gradients of the last forward call. Overwrites dq, dk, dv.
  void backward(View<const T, 4> dout, View<T, 4> dq, View<T, 4> dk, View<T, 4> dv);

  // Of the last forward call: lse [B, heads of this rank, rows of its ring block], and, with
  // record_max_logits, the largest visible score of each of those heads (-inf where there is none).
  View<const float, 3> lse() const { return {lse_.data(), lse_extents()}; }
  std::vector<float> max_logits() const { return max_logits_; }
  // Of the last backward call: this rank's part of the gradient of the sinks of its heads; empty
  // without sinks.
  std::vector<float> dsinks() const { return dsinks_; }
  // First head of this rank.
  int64_t first_head() const { return layout_.heads.query_begin(ulysses_.rank()); }

  // Bytes that one such object takes on the rank that needs most, kernel scratch included.
  // masks: as in the options.
  static int64_t workspace_bytes(const AttentionLayout& layout,
                                 std::span<const MaskRule> masks = {});

 private:
  using Extents3 = std::array<int64_t, 3>;
  using Extents4 = std::array<int64_t, 4>;

  int64_t rows() const { return layout_.placement.ring_block_rows(ring_.rank()); }
  int64_t query_heads() const { return layout_.heads.query_count(ulysses_.rank()); }
  int64_t kv_heads() const { return layout_.heads.kv_count(ulysses_.rank()); }
  Extents3 lse_extents() const { return {layout_.batch, query_heads(), rows()}; }
  Extents4 head_extents() const {
    return {layout_.batch, rows(), query_heads(), layout_.head_size};
  }

  // Blocks that one kernel call attends to, and their rows that this rank has: positions, once, or
  // for each batch row where these differ; segment ids [B, rows], or empty.
  struct Blocks {
    std::vector<int> blocks;
    std::vector<std::vector<Run>> runs;
    std::vector<int32_t> segments;
  };
  // What all calls of one mask share.
  struct MaskPlan {
    MaskRule mask;
    std::vector<Step> forward, backward;
    std::vector<Blocks> forward_calls, backward_calls;
  };

  void make_buffers();
  void make_steps();
  std::vector<Blocks> kernel_calls(const std::vector<Step>& steps) const;
  std::vector<Blocks> one_kernel_call(const std::vector<Step>& steps) const;
  void add_rows(int block, const std::vector<RowRange>& rows, Blocks& blocks) const;
  void take_segments(std::span<const int32_t> segments, Blocks& blocks) const;
  void make_calls(std::span<const int32_t> segments);
  BlockMask mask(const Blocks& blocks, int64_t row) const;
  AttentionState state(int64_t row);

  // last: this call ends the attention of the rows.
  void attend_blocks(const Blocks& blocks, bool last);
  void attend_blocks_backward(const Blocks& blocks);
  void prepare_backward();
  Poll poll();

  AttentionLayout layout_;
  Group& ring_;
  Group& ulysses_;
  std::vector<MaskPlan> plans_;  // of each mask
  size_t plan_ = 0;              // of the current call
  AttentionOptions options_;
  std::vector<float> sinks_;                // of this rank's heads
  std::unique_ptr<HeadExchange> exchange_;  // null for U = 1

  BlockExchange<T> blocks_;
  Blocks own_;  // the queries

  // Head form; views that point to the caller's tensors for U = 1.
  View<const T, 4> q_, out_, dout_;
  Buffer<T> q_heads_, out_heads_, dout_heads_;
  Buffer<float> accumulator_, max_, sum_, lse_, delta_, dq_, dkv_tokens_;
  std::vector<float> max_logits_, dsinks_;
};

}  // namespace odyssey
