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

// T: the type of keys and values. dK and dV are fp32.
template <class T>
class BlockExchange {
 public:
  // layout and ring outlive the exchange. All memory is taken here: block_buffers of the layout for
  // calls of these masks, in turn; none: that of the layout.
  BlockExchange(const AttentionLayout& layout, std::span<const MaskRule> masks, Group& ring,
                int ulysses_rank);

  // [B, rows, K of this rank, D]: those of the own block, or those rows of another block that this
  // rank was sent, in their order.
  View<T, 4> key(int block) { return tensor(block, false); }
  View<T, 4> value(int block) { return tensor(block, true); }
  // Of the same rows; zero until something is added.
  View<float, 4> key_gradient(int block) { return gradient_tensor(block, false); }
  View<float, 4> value_gradient(int block) { return gradient_tensor(block, true); }

  // A call begins: forward forgets the parts of other blocks, backward clears the own gradients.
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
  int64_t elements(int64_t rows) const { return rows * row_elements_; }
  std::array<int64_t, 4> extents(int64_t rows) const;
  View<T, 4> tensor(int block, bool value);
  View<float, 4> gradient_tensor(int block, bool value);
  std::span<const T> leaving(const Step& step);
  void transfer(const Step& step, std::span<T> into);
  void add_to_own(const std::vector<RowRange>& rows);

  const AttentionLayout& layout_;
  Group& ring_;
  int ulysses_rank_;
  int64_t row_elements_;
  BlockBuffers sizes_;
  // K and V one behind the other, each [B, rows, K, D].
  Buffer<T> own_, gathered_, packed_, travelling_[2];
  Buffer<float> own_gradient_, arriving_gradient_, partial_gradient_[2];
  // Of every block: where it is, or null; its rows that are here.
  std::vector<T*> at_;
  std::vector<float*> gradient_at_;
  std::vector<int64_t> rows_;
  size_t turn_ = 0, gradient_turn_ = 0;
  int64_t gathered_rows_ = 0;
  std::vector<RequestPtr> requests_, gradient_requests_;
};

}  // namespace odyssey
