// SPDX-License-Identifier: Apache-2.0
// The Ulysses head exchange: tensors go from token form (some tokens, all heads) to head form (all
// tokens of the ring block, some heads) and back, by one all-to-all.
// Source: Jacobs et al., "DeepSpeed Ulysses", arXiv 2309.14509, section 3.
#pragma once
#include <span>
#include <vector>

#include "odyssey/base/buffer.h"
#include "odyssey/base/view.h"
#include "odyssey/comm/group.h"
#include "odyssey/schedule/step.h"

namespace odyssey {

enum class HeadKind { kQuery, kKeyValue };

// One tensor in both forms. T: rows of this rank, Tg: rows of its ring block, heads(u): the heads
// of Ulysses rank u of that kind.
template <class T>
struct ExchangedTensor {
  HeadKind kind;
  View<T, 4> tokens;  // [B, T, H or K, D]
  View<T, 4> heads;   // [B, Tg, heads(u), D]
};

class HeadExchange {
 public:
  // layout must outlive the exchange. ulysses.size() is U, at least 2.
  HeadExchange(const AttentionLayout& layout, int ring_rank, Group& ulysses);

  // tokens -> heads, all tensors in one all-to-all.
  template <class T>
  void to_heads(std::span<const ExchangedTensor<T>> tensors);
  // heads -> tokens. Where several ranks hold copies of one head, tokens gets their sum, added in
  // rank order in type T: gradients of key/value heads must be fp32.
  template <class T>
  void to_tokens(std::span<const ExchangedTensor<T>> tensors);

  // Bytes of the message buffers on Ulysses rank u of ring rank r; U at least 2.
  static int64_t workspace_bytes(const AttentionLayout& layout, int r, int u);

 private:
  // Largest message buffers that the exchanges of one attention call need.
  struct BufferSizes {
    int64_t send = 0, receive = 0;
  };
  static BufferSizes buffer_sizes(const AttentionLayout& layout, int r, int u);
  int64_t head_begin(HeadKind kind, int u) const;
  int64_t head_count(HeadKind kind, int u) const;
  int64_t bytes_of(HeadKind kind, int rows_of_rank, int heads_of_rank, int64_t element_bytes) const;
  void exchange(int64_t send_total, int64_t receive_total);

  const AttentionLayout& layout_;
  int ring_rank_;
  Group& ulysses_;
  Buffer<std::byte> send_, receive_;
  std::vector<int64_t> send_bytes_, receive_bytes_;
};

}  // namespace odyssey
