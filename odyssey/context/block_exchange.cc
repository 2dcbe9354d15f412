// SPDX-License-Identifier: Apache-2.0
#include "odyssey/context/block_exchange.h"

#include "odyssey/base/bf16.h"
#include "odyssey/kernels/elementwise.h"

namespace odyssey {

template <class T>
BlockExchange<T>::BlockExchange(const AttentionLayout& layout, std::span<const MaskRule> masks,
                                Group& ring, int ulysses_rank)
    : layout_(layout),
      ring_(ring),
      ulysses_rank_(ulysses_rank),
      row_elements_(layout.row_elements(ulysses_rank)),
      sizes_(block_buffers(layout, masks, ring.rank(), ulysses_rank)),
      here_(elements(sizes_.own + sizes_.gathered)),
      packed_(elements(sizes_.packed)),
      travelling_{Buffer<T>(elements(sizes_.travelling[0])),
                  Buffer<T>(elements(sizes_.travelling[1]))},
      own_gradient_(elements(sizes_.own_gradient)),
      arriving_gradient_(elements(sizes_.arriving_gradient)),
      partial_gradient_{Buffer<float>(elements(sizes_.partial_gradient[0])),
                        Buffer<float>(elements(sizes_.partial_gradient[1]))},
      at_(layout.ring_size(), nullptr),
      gradient_at_(layout.ring_size(), nullptr),
      rows_(layout.ring_size(), 0) {
  at_[ring.rank()] = here_.data();
  gradient_at_[ring.rank()] = own_gradient_.data();
  rows_[ring.rank()] = sizes_.own;
  shifts_.reserve(layout.hops_at_once);
  gradients_.reserve(layout.hops_at_once);
}

template <class T>
int64_t BlockExchange<T>::rows_of(std::span<const int> blocks) const {
  int64_t rows = 0;
  for (int block : blocks) rows += rows_[block];
  return rows;
}

// which: 0 for K or dK, 1 for V or dV.
template <class T>
template <class E>
View<E, 4> BlockExchange<T>::view(E* at, int64_t rows, int which) const {
  const int64_t heads = layout_.heads.kv_count(ulysses_rank_), size = heads * layout_.head_size;
  return {at + which * size,
          {layout_.batch, rows, heads, layout_.head_size},
          {2 * size, row_elements_, layout_.head_size, 1}};
}

template <class T>
View<T, 4> BlockExchange<T>::tensor(std::span<const int> blocks, int which) {
  T* const begin = at_[blocks.front()];
  const T* next = begin;
  for (int block : blocks) {
    ODYSSEY_CHECK(at_[block] == next, "block {} is not here, or elsewhere", block);
    next += elements(rows_[block]);
  }
  return view(begin, rows_of(blocks), which);
}

template <class T>
View<float, 4> BlockExchange<T>::gradient_tensor(std::span<const int> blocks, int which) {
  if (gradient_at_[blocks.front()] == nullptr && blocks.front() != ring_.rank()) {
    gradient_turn_ = 1 - gradient_turn_;
    float* at = partial_gradient_[gradient_turn_].data();
    for (int block : blocks) {
      gradient_at_[block] = at;
      at += elements(rows_[block]);
    }
  }
  return view(gradient_at_[blocks.front()], rows_of(blocks), which);
}

template <class T>
void BlockExchange<T>::begin_forward() {
  turn_ = 0;
  gathered_rows_ = 0;
}

template <class T>
void BlockExchange<T>::begin_backward() {
  turn_ = gradient_turn_ = 0;
}

// The own rows that a step sends: as they lie, or put together.
template <class T>
std::span<const T> BlockExchange<T>::leaving(const Step& step) {
  if (is_one_piece(step.rows)) {
    return here_.span().subspan(elements(step.rows[0].begin), elements(step.rows[0].count));
  }
  const int64_t rows = count_rows(step.rows);
  T* to = packed_.data() + elements(packed_rows_);
  packed_rows_ += rows;
  const std::span<const T> packed(to, elements(rows));
  for (const RowRange& range : step.rows) {
    const std::array<int64_t, 3> extents{range.count, 1, row_elements_};
    copy<T>(View<const T, 3>(here_.data() + elements(range.begin), extents),
            View<T, 3>(to, extents));
    to += elements(range.count);
  }
  return packed;
}

template <class T>
void BlockExchange<T>::transfer(const Step& step, std::span<T> into) {
  Transfer& started = shifts_.emplace_back();
  if (step.from >= 0) {
    at_[step.arriving] = into.data();
    rows_[step.arriving] = count_rows(step.arriving_rows);
    started.receive = ring_.receive(std::as_writable_bytes(into), step.from, Tag::kShift);
  }
  if (step.to >= 0) {
    started.send = ring_.send(std::as_bytes(leaving(step)), step.to, Tag::kShift);
  }
}

template <class T>
void BlockExchange<T>::await_oldest(std::vector<Transfer>& transfers) {
  if (transfers.front().receive) ring_.wait(transfers.front().receive);
  if (transfers.front().send) ring_.wait(transfers.front().send);
  transfers.erase(transfers.begin());
}

template <class T>
void BlockExchange<T>::start_shift(const Step& step) {
  if (shifts_.empty()) packed_rows_ = arrived_rows_ = 0;  // a new group
  std::span<T> into;
  if (step.from >= 0) {
    if (arrived_rows_ == 0) turn_ = 1 - turn_;
    const int64_t rows = count_rows(step.arriving_rows);
    into = travelling_[turn_].span().subspan(elements(arrived_rows_), elements(rows));
    arrived_rows_ += rows;
  }
  transfer(step, into);
}

template <class T>
void BlockExchange<T>::await_shift() {
  await_oldest(shifts_);
}

template <class T>
void BlockExchange<T>::gather(const Step& step) {
  packed_rows_ = 0;
  const int64_t rows = count_rows(step.arriving_rows);
  transfer(step, here_.span().subspan(elements(sizes_.own + gathered_rows_), elements(rows)));
  gathered_rows_ += rows;
  await_shift();
}

template <class T>
void BlockExchange<T>::start_gradient(const Step& step) {
  if (gradients_.empty()) gradient_arriving_rows_ = gradient_added_rows_ = 0;  // a new group
  Transfer& started = gradients_.emplace_back();
  if (step.from >= 0) {
    const int64_t rows = count_rows(step.arriving_rows);
    const auto into =
        arriving_gradient_.span().subspan(elements(gradient_arriving_rows_), elements(rows));
    gradient_arriving_rows_ += rows;
    started.receive = ring_.receive(std::as_writable_bytes(into), step.from, Tag::kShiftGradient);
  }
  if (step.to >= 0) {
    const std::span<const float> part(gradient_at_[step.block], elements(rows_[step.block]));
    started.send = ring_.send(std::as_bytes(part), step.to, Tag::kShiftGradient);
    gradient_at_[step.block] = nullptr;
  }
}

// Adds what has arrived for these rows of the own block.
template <class T>
void BlockExchange<T>::await_gradient(const Step& step) {
  await_oldest(gradients_);
  for (const RowRange& range : step.arriving_rows) {
    const std::span<const float> arrived =
        arriving_gradient_.span().subspan(elements(gradient_added_rows_), elements(range.count));
    add<float>(arrived, own_gradient_.span().subspan(elements(range.begin), elements(range.count)));
    gradient_added_rows_ += range.count;
  }
}

template <class T>
void BlockExchange<T>::poll() {
  for (std::vector<Transfer>* transfers : {&shifts_, &gradients_}) {
    for (Transfer& started : *transfers) {
      if (started.receive) ring_.test(started.receive);
      if (started.send) ring_.test(started.send);
    }
  }
}

template class BlockExchange<float>;
template class BlockExchange<bf16>;

}  // namespace odyssey
