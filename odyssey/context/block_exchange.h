// SPDX-License-Identifier: Apache-2.0
// The outer exchange of one rank: holds the keys and values of its own block and of the parts of
// other blocks that are here, and the gradients of both; runs the steps that move them.
// schedule/step.h says which rows go where and why.
#pragma once
#include <span>
#include <vector>

#include "odyssey/base/buffer.h"
#include "odyssey/base/view.h"
#include "odyssey/comm/group.h"
#include "odyssey/schedule/block_buffers.h"
#include "odyssey/schedule/step.h"

namespace odyssey {

// T: the type of keys and values. dK and dV are fp32. Memory and messages are [rows, B, 2, K, D], K
// and V of a row side by side: so rows that lie next to each other leave as they lie, and blocks
// that arrive one behind the other are one tensor to the kernels.
template <class T>
class BlockExchange {
 public:
  // layout and ring outlive the exchange. All memory is taken here: block_buffers of the layout for
  // calls of these masks, in turn; none: that of the layout.
  BlockExchange(const AttentionLayout& layout, std::span<const MaskRule> masks, Group& ring,
                int ulysses_rank);

  // [B, rows, K of this rank, D] of blocks that lie one behind the other: those of
  // the own block, those rows of other blocks that this rank was sent, in their order.
  View<T, 4> key(std::span<const int> blocks) { return tensor(blocks, 0); }
  View<T, 4> value(std::span<const int> blocks) { return tensor(blocks, 1); }
  // Of the same rows, to be written by one call of the kernel: the own block alone, or others that
  // are sent home before the next are asked for.
  View<float, 4> key_gradient(std::span<const int> blocks) { return gradient_tensor(blocks, 0); }
  View<float, 4> value_gradient(std::span<const int> blocks) { return gradient_tensor(blocks, 1); }

  // A call begins: the parts of other blocks, and their gradients, are forgotten.
  void begin_forward();
  void begin_backward();

  // kShift, kAwaitShift, kGather, kShiftGradient, kAwaitGradient.
  void start_shift(const Step& step);
  void await_shift();
  void gather(const Step& step);
  void start_gradient(const Step& step);
  void await_gradient(const Step& step);
  // Lets transfers make progress; between the tiles of a kernel.
  void poll();

 private:
  // Both directions of one step; null where nothing goes or comes.
  struct Transfer {
    RequestPtr receive, send;
  };

  int64_t elements(int64_t rows) const { return rows * row_elements_; }
  int64_t rows_of(std::span<const int> blocks) const;
  template <class E>
  View<E, 4> view(E* at, int64_t rows, int which) const;
  View<T, 4> tensor(std::span<const int> blocks, int which);
  View<float, 4> gradient_tensor(std::span<const int> blocks, int which);
  std::span<const T> leaving(const Step& step);
  void transfer(const Step& step, std::span<T> into);
  void await_oldest(std::vector<Transfer>& transfers);

  const AttentionLayout& layout_;
  Group& ring_;
  int ulysses_rank_;
  int64_t row_elements_;
  BlockBuffers sizes_;
  Buffer<T> here_;  // the own block, and behind it all that was gathered
  Buffer<T> packed_, travelling_[2];
  Buffer<float> own_gradient_, arriving_gradient_, partial_gradient_[2];
  // Of every block: where it is, or null; its rows that are here.
  std::vector<T*> at_;
  std::vector<float*> gradient_at_;
  std::vector<int64_t> rows_;
  // The buffers in turn, and rows that the group under way has put into its own so far.
  size_t turn_ = 0, gradient_turn_ = 0;
  int64_t gathered_rows_ = 0, packed_rows_ = 0, arrived_rows_ = 0;
  int64_t gradient_arriving_rows_ = 0, gradient_added_rows_ = 0;
  std::vector<Transfer> shifts_, gradients_;  // under way, the oldest first
};

}  // namespace odyssey
