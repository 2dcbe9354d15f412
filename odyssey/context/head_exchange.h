// SPDX-License-Identifier: Apache-2.0
// The Ulysses head exchange: tensors go from token form (some tokens, all heads) to head form (all
// tokens of the ring block, some heads) and back, by one all-to-all.
// Source: Jacobs et al., "DeepSpeed Ulysses", arXiv 2309.14509, section 3.
#pragma once
#include <span>
#include <vector>

#include "odyssey/base/buffer.h"
#include "odyssey/base/view.h"
#include "odyssey/comm/all_to_all.h"
#include "odyssey/comm/group.h"
#include "odyssey/schedule/step.h"

namespace odyssey {

enum class HeadKind { kQuery, kKeyValue };

// One tensor in both forms. T: rows of this rank, Tg: rows of its ring block, heads(u): the heads
// of Ulysses rank u of that kind.
//
// In head form the rows of one rank are neighbours, so they leave from where they lie and arrive
// there; only the token form is packed. This asks for an order of memory: a query tensor is
// contiguous, the key/value tensors of a call lie interleaved, [Tg, B, tensors, heads(u), D].
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

  // tokens -> heads, all tensors in one all-to-all: query tensors first.
  template <class T>
  void to_heads(std::span<const ExchangedTensor<T>> tensors);
  // heads -> tokens. Where several ranks hold copies of one head, tokens gets their sum, added in
  // rank order in type T: gradients of key/value heads must be fp32.
  template <class T>
  void to_tokens(std::span<const ExchangedTensor<T>> tensors);

  // Bytes of the packed messages on Ulysses rank u of ring rank r; U at least 2.
  static int64_t workspace_bytes(const AttentionLayout& layout, int r, int u);

 private:
  int64_t head_begin(HeadKind kind, int u) const;
  int64_t head_count(HeadKind kind, int u) const;
  int64_t rows_of(int u) const { return layout_.placement.local_count(ring_rank_, u); }
  // Lists what goes between the rows of Ulysses rank `other` in head form and that rank.
  template <class T, class Byte>
  void add_in_place(std::span<const ExchangedTensor<T>> tensors, int other,
                    std::vector<Part<Byte>>& parts) const;
  // The same for the heads of `other` and own rows, packed from `at` on; returns where they end.
  template <class T, class Byte>
  T* add_packed(std::span<const ExchangedTensor<T>> tensors, int other, T* at,
                std::vector<Part<Byte>>& parts) const;
  // The heads of `other` and own rows of tensor i, within what is packed from `at` on.
  template <class T>
  View<T, 4> packed(std::span<const ExchangedTensor<T>> tensors, size_t i, int other, T* at) const;

  const AttentionLayout& layout_;
  int ring_rank_;
  Group& ulysses_;
  Buffer<std::byte> packed_;
  std::vector<Part<const std::byte>> send_;
  std::vector<Part<std::byte>> receive_;
};

}  // namespace odyssey
