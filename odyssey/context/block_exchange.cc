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
      own_(elements(sizes_.own)),
      gathered_(elements(sizes_.gathered)),
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
  at_[ring.rank()] = own_.data();
  gradient_at_[ring.rank()] = own_gradient_.data();
  rows_[ring.rank()] = sizes_.own;
  requests_.reserve(2);
  gradient_requests_.reserve(2);
}

template <class T>
std::array<int64_t, 4> BlockExchange<T>::extents(int64_t rows) const {
  return {layout_.batch, rows, layout_.heads.kv_count(ulysses_rank_), layout_.head_size};
}

template <class T>
View<T, 4> BlockExchange<T>::tensor(int block, bool value) {
  const int64_t size = elements(rows_[block]);
  ODYSSEY_CHECK(at_[block] != nullptr || block == ring_.rank(), "block {} is not here", block);
  return {at_[block] + (value ? size / 2 : 0), extents(rows_[block])};
}

// dK and dV of a block; zeros when this rank has added nothing yet.
template <class T>
View<float, 4> BlockExchange<T>::gradient_tensor(int block, bool value) {
  const int64_t size = elements(rows_[block]);
  if (gradient_at_[block] == nullptr && block != ring_.rank()) {
    Buffer<float>& buffer = partial_gradient_[gradient_turn_];
    gradient_turn_ = 1 - gradient_turn_;
    fill_zero(buffer.span().first(size));
    gradient_at_[block] = buffer.data();
  }
  return {gradient_at_[block] + (value ? size / 2 : 0), extents(rows_[block])};
}

template <class T>
void BlockExchange<T>::begin_forward() {
  turn_ = 0;
  gathered_rows_ = 0;
}

template <class T>
void BlockExchange<T>::begin_backward() {
  turn_ = gradient_turn_ = 0;
  fill_zero(own_gradient_.span());
}

// The own rows that a step sends: as they lie, or put together.
template <class T>
std::span<const T> BlockExchange<T>::leaving(const Step& step) {
  const int64_t rows = count_rows(step.rows);
  if (is_whole_block(step.rows, sizes_.own)) return own_.span();
  const auto own = [&](bool value) { return tensor(ring_.rank(), value); };
  const auto packed = [&](bool value) {
    return View<T, 4>(packed_.data() + (value ? elements(rows) / 2 : 0), extents(rows));
  };
  for (bool value : {false, true}) {
    int64_t row = 0;
    for (const RowRange& range : step.rows) {
      copy<T>(own(value).slice(1, range.begin, range.begin + range.count),
              packed(value).slice(1, row, row + range.count));
      row += range.count;
    }
  }
  return packed_.span().first(elements(rows));
}

template <class T>
void BlockExchange<T>::transfer(const Step& step, std::span<T> into) {
  if (step.from >= 0) {
    at_[step.arriving] = into.data();
    rows_[step.arriving] = count_rows(step.arriving_rows);
    requests_.push_back(ring_.receive(std::as_writable_bytes(into), step.from, Tag::kShift));
  }
  if (step.to >= 0) {
    requests_.push_back(ring_.send(std::as_bytes(leaving(step)), step.to, Tag::kShift));
  }
}

template <class T>
void BlockExchange<T>::start_shift(const Step& step) {
  std::span<T> into;
  if (step.from >= 0) {
    into = travelling_[turn_].span().first(elements(count_rows(step.arriving_rows)));
    turn_ = 1 - turn_;
  }
  transfer(step, into);
}

template <class T>
void BlockExchange<T>::await_shift() {
  ring_.wait_all(requests_);
  requests_.clear();
}

template <class T>
void BlockExchange<T>::gather(const Step& step) {
  const int64_t rows = count_rows(step.arriving_rows);
  transfer(step, gathered_.span().subspan(elements(gathered_rows_), elements(rows)));
  gathered_rows_ += rows;
  await_shift();
}

template <class T>
void BlockExchange<T>::start_gradient(const Step& step) {
  if (step.from >= 0) {
    const auto into = arriving_gradient_.span().first(elements(count_rows(step.arriving_rows)));
    gradient_requests_.push_back(
        ring_.receive(std::as_writable_bytes(into), step.from, Tag::kShiftGradient));
  }
  if (step.to >= 0) {
    const std::span<const float> part(gradient_at_[step.block], elements(rows_[step.block]));
    gradient_requests_.push_back(ring_.send(std::as_bytes(part), step.to, Tag::kShiftGradient));
    gradient_at_[step.block] = nullptr;
  }
}

template <class T>
void BlockExchange<T>::await_gradient(const Step& step) {
  ring_.wait_all(gradient_requests_);
  gradient_requests_.clear();
  if (step.from >= 0) add_to_own(step.arriving_rows);
}

// What has arrived for these rows of the own block.
template <class T>
void BlockExchange<T>::add_to_own(const std::vector<RowRange>& ranges) {
  const int64_t rows = count_rows(ranges);
  for (bool value : {false, true}) {
    const View<const float, 4> arrived(arriving_gradient_.data() + (value ? elements(rows) / 2 : 0),
                                       extents(rows));
    const View<float, 4> own = gradient_tensor(ring_.rank(), value);
    int64_t row = 0;
    for (const RowRange& range : ranges) {
      add<float>(arrived.slice(1, row, row + range.count),
                 own.slice(1, range.begin, range.begin + range.count));
      row += range.count;
    }
  }
}

template <class T>
void BlockExchange<T>::poll() {
  for (RequestPtr& request : requests_) ring_.test(request);
  for (RequestPtr& request : gradient_requests_) ring_.test(request);
}

template class BlockExchange<float>;
template class BlockExchange<bf16>;

}  // namespace odyssey
