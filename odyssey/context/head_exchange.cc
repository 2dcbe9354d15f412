// SPDX-License-Identifier: Apache-2.0
#include "odyssey/context/head_exchange.h"

#include <algorithm>

#include "odyssey/base/bf16.h"
#include "odyssey/kernels/elementwise.h"

namespace odyssey {
namespace {

template <class Byte, class T>
std::span<Byte> bytes_at(T* at, int64_t elements) {
  return std::as_writable_bytes(std::span(at, static_cast<size_t>(elements)));
}

template <class T>
int64_t count_of(std::span<const ExchangedTensor<T>> tensors, HeadKind kind) {
  return std::ranges::count(tensors, kind, &ExchangedTensor<T>::kind);
}

}  // namespace

HeadExchange::HeadExchange(const AttentionLayout& layout, int ring_rank, Group& ulysses)
    : layout_(layout),
      ring_rank_(ring_rank),
      ulysses_(ulysses),
      packed_(workspace_bytes(layout, ring_rank, ulysses.rank())) {}

// The largest of: q, k, v in; out, or dq, back; dk and dv, in fp32, back. Own rows, heads of
// others.
int64_t HeadExchange::workspace_bytes(const AttentionLayout& layout, int r, int u) {
  const int64_t rows = layout.batch * layout.placement.local_count(r, u) * layout.head_size;
  int64_t query = 0, key_value = 0;
  for (int other = 0; other < layout.ulysses_size(); ++other) {
    if (other == u) continue;
    query += rows * layout.heads.query_count(other);
    key_value += 2 * rows * layout.heads.kv_count(other);
  }
  return std::max((query + key_value) * layout.element_bytes, key_value * 4);
}

int64_t HeadExchange::head_begin(HeadKind kind, int u) const {
  return kind == HeadKind::kQuery ? layout_.heads.query_begin(u) : layout_.heads.kv_begin(u);
}

int64_t HeadExchange::head_count(HeadKind kind, int u) const {
  return kind == HeadKind::kQuery ? layout_.heads.query_count(u) : layout_.heads.kv_count(u);
}

// A part for each batch row of a query tensor, and one for all key/value tensors.
template <class T, class Byte>
void HeadExchange::add_in_place(std::span<const ExchangedTensor<T>> tensors, int other,
                                std::vector<Part<Byte>>& parts) const {
  const int64_t first = layout_.placement.local_begin(ring_rank_, other), rows = rows_of(other);
  for (const ExchangedTensor<T>& tensor : tensors) {
    const View<T, 4>& heads = tensor.heads;
    ODYSSEY_CHECK(tensor.kind == HeadKind::kKeyValue
                      ? heads.stride(1) == count_of(tensors, tensor.kind) * layout_.batch *
                                               heads.extent(2) * heads.extent(3)
                      : heads.is_contiguous(),
                  "head form with row stride {}", heads.stride(1));
    T* const at = heads.data() + first * heads.stride(1);
    if (tensor.kind == HeadKind::kKeyValue) {
      parts.push_back({other, bytes_at<Byte>(at, rows * heads.stride(1))});
      return;
    }
    for (int64_t b = 0; b < layout_.batch; ++b) {
      parts.push_back({other, bytes_at<Byte>(at + b * heads.stride(0), rows * heads.stride(1))});
    }
  }
}

template <class T, class Byte>
T* HeadExchange::add_packed(std::span<const ExchangedTensor<T>> tensors, int other, T* at,
                            std::vector<Part<Byte>>& parts) const {
  const auto add = [&](int64_t elements) {
    parts.push_back({other, bytes_at<Byte>(at, elements)});
    at += elements;
  };
  const int64_t row = layout_.head_size * rows_of(ulysses_.rank());
  const int64_t queries = count_of(tensors, HeadKind::kQuery) * layout_.batch;
  const int64_t keys = count_of(tensors, HeadKind::kKeyValue) * layout_.batch;
  for (int64_t i = 0; i < queries; ++i) add(row * head_count(HeadKind::kQuery, other));
  if (keys > 0) add(row * head_count(HeadKind::kKeyValue, other) * keys);
  return at;
}

template <class T>
View<T, 4> HeadExchange::packed(std::span<const ExchangedTensor<T>> tensors, size_t i, int other,
                                T* at) const {
  const HeadKind kind = tensors[i].kind;
  const int64_t batch = layout_.batch, size = head_count(kind, other) * layout_.head_size;
  const std::array<int64_t, 4> extents{batch, rows_of(ulysses_.rank()), head_count(kind, other),
                                       layout_.head_size};
  const int64_t queries = count_of(tensors, HeadKind::kQuery);
  const int64_t row = layout_.head_size * head_count(HeadKind::kQuery, other);
  const int64_t query = batch * extents[1] * row;  // elements of one query tensor
  const auto index = static_cast<int64_t>(i);
  if (kind == HeadKind::kQuery) return {at + index * query, extents};
  const int64_t keys = count_of(tensors, HeadKind::kKeyValue);
  return {at + queries * query + (index - queries) * size,
          extents,
          {keys * size, batch * keys * size, layout_.head_size, 1}};
}

template <class T>
void HeadExchange::to_heads(std::span<const ExchangedTensor<T>> tensors) {
  const int own = ulysses_.rank();
  send_.clear();
  receive_.clear();
  T* at = reinterpret_cast<T*>(packed_.data());
  for (int u = 0; u < ulysses_.size(); ++u) {
    if (u == own) continue;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const HeadKind kind = tensors[i].kind;
      copy<T>(tensors[i].tokens.slice(2, head_begin(kind, u),
                                      head_begin(kind, u) + head_count(kind, u)),
              packed(tensors, i, u, at));
    }
    at = add_packed(tensors, u, at, send_);
    add_in_place(tensors, u, receive_);
  }
  const int64_t row = layout_.placement.local_begin(ring_rank_, own);
  for (const auto& [kind, tokens, heads] : tensors) {
    const int64_t head = head_begin(kind, own);
    copy<T>(tokens.slice(2, head, head + head_count(kind, own)),
            heads.slice(1, row, row + rows_of(own)));
  }
  all_to_all(ulysses_, send_, receive_);
}

template <class T>
void HeadExchange::to_tokens(std::span<const ExchangedTensor<T>> tensors) {
  const int own = ulysses_.rank();
  send_.clear();
  receive_.clear();
  T* at = reinterpret_cast<T*>(packed_.data());
  for (int u = 0; u < ulysses_.size(); ++u) {
    if (u == own) continue;
    add_in_place(tensors, u, send_);
    at = add_packed(tensors, u, at, receive_);
  }
  all_to_all(ulysses_, send_, receive_);
  at = reinterpret_cast<T*>(packed_.data());
  const int64_t row = layout_.placement.local_begin(ring_rank_, own);
  for (int u = 0; u < ulysses_.size(); ++u) {
    int64_t elements = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto& [kind, tokens, heads] = tensors[i];
      const int64_t first = head_begin(kind, u), count = head_count(kind, u);
      const View<T, 4> all = tokens.slice(2, first, first + count);
      const View<T, 4> arrived =
          u == own ? heads.slice(1, row, row + rows_of(own)) : packed(tensors, i, u, at);
      elements += arrived.size();
      // Only the first head can be one that a rank before this one has delivered already.
      const int64_t delivered = u == 0 ? 0 : head_begin(kind, u - 1) + head_count(kind, u - 1);
      const int64_t shared = std::clamp<int64_t>(delivered - first, 0, count);
      add<T>(arrived.slice(2, 0, shared), all.slice(2, 0, shared));
      copy<T>(arrived.slice(2, shared, count), all.slice(2, shared, count));
    }
    if (u != own) at += elements;
  }
}

template void HeadExchange::to_heads<float>(std::span<const ExchangedTensor<float>>);
template void HeadExchange::to_heads<bf16>(std::span<const ExchangedTensor<bf16>>);
template void HeadExchange::to_tokens<float>(std::span<const ExchangedTensor<float>>);
template void HeadExchange::to_tokens<bf16>(std::span<const ExchangedTensor<bf16>>);

}  // namespace odyssey
