// SPDX-License-Identifier: Apache-2.0
#include "odyssey/context/head_exchange.h"

#include <algorithm>

#include "odyssey/base/bf16.h"
#include "odyssey/comm/all_to_all.h"
#include "odyssey/kernels/elementwise.h"

namespace odyssey {
namespace {

// The next part of a message, as a view of the given extents; moves the cursor behind it.
template <class T>
View<T, 4> next_part(std::byte*& cursor, const std::array<int64_t, 4>& extents) {
  View<T, 4> part(reinterpret_cast<T*>(cursor), extents);
  cursor += part.size() * static_cast<int64_t>(sizeof(T));
  return part;
}

}  // namespace

HeadExchange::HeadExchange(const AttentionLayout& layout, int ring_rank, Group& ulysses)
    : layout_(layout),
      ring_rank_(ring_rank),
      ulysses_(ulysses),
      send_bytes_(ulysses.size()),
      receive_bytes_(ulysses.size()) {
  const BufferSizes sizes = buffer_sizes(layout, ring_rank, ulysses.rank());
  send_ = Buffer<std::byte>(sizes.send);
  receive_ = Buffer<std::byte>(sizes.receive);
}

// The largest of four exchanges: q, k, v in; out back (and dout in, the same the other way round);
// dq back; dk and dv, in fp32, back.
HeadExchange::BufferSizes HeadExchange::buffer_sizes(const AttentionLayout& layout, int r, int u) {
  const HeadMap& heads = layout.heads;
  const int64_t element = layout.element_bytes;
  // Token form: own rows with the heads of everyone. Head form: everyone's rows with own heads.
  int64_t query_tokens = 0, kv_tokens = 0, query_heads = 0, kv_heads = 0;
  for (int other = 0; other < layout.ulysses_size(); ++other) {
    const int64_t own_rows = layout.batch * layout.placement.local_count(r, u) * layout.head_size;
    const int64_t rows = layout.batch * layout.placement.local_count(r, other) * layout.head_size;
    query_tokens += own_rows * heads.query_count(other);
    kv_tokens += 2 * own_rows * heads.kv_count(other);
    query_heads += rows * heads.query_count(u);
    kv_heads += 2 * rows * heads.kv_count(u);
  }
  const int64_t in = (query_tokens + kv_tokens) * element;
  const int64_t in_heads = (query_heads + kv_heads) * element;
  return {std::max({in, query_heads * element, kv_heads * 4}),
          std::max({in_heads, query_tokens * element, kv_tokens * 4})};
}

int64_t HeadExchange::workspace_bytes(const AttentionLayout& layout, int r, int u) {
  const BufferSizes sizes = buffer_sizes(layout, r, u);
  return sizes.send + sizes.receive;
}

int64_t HeadExchange::head_begin(HeadKind kind, int u) const {
  return kind == HeadKind::kQuery ? layout_.heads.query_begin(u) : layout_.heads.kv_begin(u);
}

int64_t HeadExchange::head_count(HeadKind kind, int u) const {
  return kind == HeadKind::kQuery ? layout_.heads.query_count(u) : layout_.heads.kv_count(u);
}

int64_t HeadExchange::bytes_of(HeadKind kind, int rows_of_rank, int heads_of_rank,
                               int64_t element_bytes) const {
  return layout_.batch * layout_.placement.local_count(ring_rank_, rows_of_rank) *
         head_count(kind, heads_of_rank) * layout_.head_size * element_bytes;
}

void HeadExchange::exchange(int64_t send_total, int64_t receive_total) {
  all_to_all(ulysses_, send_.span().first(send_total), send_bytes_,
             receive_.span().first(receive_total), receive_bytes_);
}

template <class T>
void HeadExchange::to_heads(std::span<const ExchangedTensor<T>> tensors) {
  const int own = ulysses_.rank();
  std::byte* cursor = send_.data();
  int64_t receive_total = 0;
  for (int u = 0; u < ulysses_.size(); ++u) {
    const std::byte* begin = cursor;
    receive_bytes_[u] = 0;
    for (const ExchangedTensor<T>& tensor : tensors) {
      const int64_t head = head_begin(tensor.kind, u);
      const View<T, 4> part = tensor.tokens.slice(2, head, head + head_count(tensor.kind, u));
      copy<T>(part, next_part<T>(cursor, part.extents()));
      receive_bytes_[u] += bytes_of(tensor.kind, u, own, sizeof(T));
    }
    send_bytes_[u] = cursor - begin;
    receive_total += receive_bytes_[u];
  }
  exchange(cursor - send_.data(), receive_total);
  cursor = receive_.data();
  for (int u = 0; u < ulysses_.size(); ++u) {
    const int64_t row = layout_.placement.local_begin(ring_rank_, u);
    const int64_t rows = layout_.placement.local_count(ring_rank_, u);
    for (const ExchangedTensor<T>& tensor : tensors) {
      const View<T, 4> part = tensor.heads.slice(1, row, row + rows);
      copy<T>(next_part<T>(cursor, part.extents()), part);
    }
  }
}

template <class T>
void HeadExchange::to_tokens(std::span<const ExchangedTensor<T>> tensors) {
  const int own = ulysses_.rank();
  std::byte* cursor = send_.data();
  int64_t receive_total = 0;
  for (int u = 0; u < ulysses_.size(); ++u) {
    const std::byte* begin = cursor;
    const int64_t row = layout_.placement.local_begin(ring_rank_, u);
    const int64_t rows = layout_.placement.local_count(ring_rank_, u);
    receive_bytes_[u] = 0;
    for (const ExchangedTensor<T>& tensor : tensors) {
      const View<T, 4> part = tensor.heads.slice(1, row, row + rows);
      copy<T>(part, next_part<T>(cursor, part.extents()));
      receive_bytes_[u] += bytes_of(tensor.kind, own, u, sizeof(T));
    }
    send_bytes_[u] = cursor - begin;
    receive_total += receive_bytes_[u];
  }
  exchange(cursor - send_.data(), receive_total);
  cursor = receive_.data();
  for (int u = 0; u < ulysses_.size(); ++u) {
    for (const ExchangedTensor<T>& tensor : tensors) {
      const int64_t first = head_begin(tensor.kind, u);
      const int64_t count = head_count(tensor.kind, u);
      const View<T, 4> all = tensor.tokens.slice(2, first, first + count);
      const View<T, 4> arrived = next_part<T>(cursor, all.extents());
      // Only the first head can be one that a rank before this one has delivered already.
      const int64_t delivered =
          u == 0 ? 0 : head_begin(tensor.kind, u - 1) + head_count(tensor.kind, u - 1);
      const int64_t shared = std::clamp<int64_t>(delivered - first, 0, count);
      add<T>(arrived.slice(2, 0, shared), all.slice(2, 0, shared));
      copy<T>(arrived.slice(2, shared, count), all.slice(2, shared, count));
    }
  }
}

template void HeadExchange::to_heads<float>(std::span<const ExchangedTensor<float>>);
template void HeadExchange::to_heads<bf16>(std::span<const ExchangedTensor<bf16>>);
template void HeadExchange::to_tokens<float>(std::span<const ExchangedTensor<float>>);
template void HeadExchange::to_tokens<bf16>(std::span<const ExchangedTensor<bf16>>);

}  // namespace odyssey
