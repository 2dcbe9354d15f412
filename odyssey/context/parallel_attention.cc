// SPDX-License-Identifier: Apache-2.0
#include "odyssey/context/parallel_attention.h"

#include <algorithm>
#include <limits>

#include "odyssey/comm/all_gather.h"
#include "odyssey/comm/reduce_scatter.h"
#include "odyssey/kernels/elementwise.h"
#include "odyssey/sequence/shard.h"

namespace odyssey {

template <class T>
ParallelAttention<T>::ParallelAttention(const AttentionLayout& layout,
                                        const ParallelAttentionOptions& options, Group& ring,
                                        Group& ulysses)
    : layout_(layout),
      ring_(ring),
      ulysses_(ulysses),
      forward_steps_(forward_schedule(layout, ring.rank(), ulysses.rank())),
      backward_steps_(backward_schedule(layout, ring.rank(), ulysses.rank())) {
  ODYSSEY_CHECK(ring.size() == layout.ring_size() && ulysses.size() == layout.ulysses_size(),
                "groups of {}x{} for a layout of {}x{}", ring.size(), ulysses.size(),
                layout.ring_size(), layout.ulysses_size());
  make_runs();
  make_options(options);
  make_buffers();
}

template <class T>
void ParallelAttention<T>::make_runs() {
  runs_.resize(layout_.ring_size());
  for (int block = 0; block < layout_.ring_size(); ++block) {
    runs_[block].clear();
    if (layout_.rows.empty()) runs_[block].push_back(layout_.placement.ring_block(block));
    for (const Placement& row : layout_.rows) runs_[block].push_back(row.ring_block(block));
  }
}

template <class T>
void ParallelAttention<T>::make_options(const ParallelAttentionOptions& options) {
  const HeadMap& heads = layout_.heads;
  options_.scale = options.scale;
  options_.soft_cap = options.soft_cap;
  options_.queries_per_kv = heads.queries_per_kv();
  options_.phase = heads.phase(ulysses_.rank());
  if (!options.sinks.empty()) {
    const auto first = options.sinks.begin() + heads.query_begin(ulysses_.rank());
    sinks_.assign(first, first + query_heads());
  }
}

template <class T>
void ParallelAttention<T>::make_buffers() {
  const int ring = layout_.ring_size();
  const int64_t head_elements = layout_.batch * rows() * query_heads() * layout_.head_size;
  const int64_t stat_elements = layout_.batch * rows() * query_heads();
  if (layout_.ulysses_size() > 1) {
    exchange_ = std::make_unique<HeadExchange>(layout_, ring_.rank(), ulysses_);
    q_heads_ = Buffer<T>(head_elements);
    out_heads_ = Buffer<T>(head_elements);
    dout_heads_ = Buffer<T>(head_elements);
    const int64_t local =
        layout_.batch * layout_.placement.local_count(ring_.rank(), ulysses_.rank());
    dkv_tokens_ = Buffer<float>(2 * local * layout_.heads.kv_heads() * layout_.head_size);
  }
  accumulator_ = Buffer<float>(head_elements);
  dq_ = Buffer<float>(head_elements);
  for (Buffer<float>* stat : {&max_, &sum_, &lse_, &delta_}) *stat = Buffer<float>(stat_elements);

  int64_t largest = 0, total = 0;
  for (int block = 0; block < ring; ++block) {
    largest = std::max(largest, 2 * block_elements(block));
    total += 2 * block_elements(block);
    gather_counts_.push_back(2 * block_elements(block));
    gather_bytes_.push_back(gather_counts_.back() * static_cast<int64_t>(sizeof(T)));
  }
  block_at_.assign(ring, nullptr);
  gradient_at_.assign(ring, nullptr);
  if (layout_.outer_gather) {
    all_ = Buffer<T>(total);
    all_gradients_ = Buffer<float>(total);
    reduce_workspace_ = Buffer<float>(reduce_scatter_workspace(gather_counts_));
    int64_t offset = 0;
    for (int block = 0; block < ring; ++block) {
      block_at_[block] = all_.data() + offset;
      gradient_at_[block] = all_gradients_.data() + offset;
      offset += gather_counts_[block];
    }
    return;
  }
  own_ = Buffer<T>(2 * block_elements(ring_.rank()));
  block_at_[ring_.rank()] = own_.data();
  gradients_[0] = Buffer<float>(largest);
  if (ring > 1) {
    gradients_[1] = Buffer<float>(largest);
    arriving_gradient_ = Buffer<float>(largest);
    for (Buffer<T>& buffer : travel_) buffer = Buffer<T>(largest);
  }
}

template <class T>
int64_t ParallelAttention<T>::workspace_bytes(const AttentionLayout& layout) {
  // Ring rank 0 and Ulysses rank 0 have the longest parts.
  const HeadMap& heads = layout.heads;
  int64_t kv_heads = 0, exchange = 0;
  for (int u = 0; u < layout.ulysses_size(); ++u) {
    kv_heads = std::max(kv_heads, heads.kv_count(u));
    if (layout.ulysses_size() > 1) {
      exchange = std::max(exchange, HeadExchange::workspace_bytes(layout, 0, u));
    }
  }
  const int64_t rows = layout.batch * layout.placement.most_ring_block_rows();
  const int64_t query = rows * heads.query_count(0) * layout.head_size;
  const int64_t block = 2 * rows * kv_heads * layout.head_size;
  const int64_t sequence =
      2 * layout.batch * layout.placement.sequence_length() * kv_heads * layout.head_size;
  int64_t elements = 0, floats = 2 * query + 4 * rows * heads.query_count(0);
  if (layout.outer_gather) {
    elements += sequence;
    floats += sequence + reduce_scatter_workspace(std::vector<int64_t>(layout.ring_size(), block));
  } else {
    elements += layout.ring_size() > 1 ? 3 * block : block;
    floats += layout.ring_size() > 1 ? 3 * block : block;
  }
  if (layout.ulysses_size() > 1) {
    elements += 3 * query;
    floats +=
        2 * layout.batch * layout.placement.most_local_rows() * heads.kv_heads() * layout.head_size;
  }
  return elements * static_cast<int64_t>(sizeof(T)) + floats * 4 + exchange +
         attention_scratch_bytes(layout.placement.most_ring_block_rows(), layout.head_size);
}

template <class T>
void ParallelAttention<T>::set_segments(std::span<const int32_t> segments) {
  const int64_t length = layout_.placement.sequence_length();
  ODYSSEY_CHECK(segments.empty() || static_cast<int64_t>(segments.size()) == layout_.batch * length,
                "{} segment ids for {} rows of {}", segments.size(), layout_.batch, length);
  if (layout_.placement.kind() == PlacementKind::kPerDocument) {
    layout_.rows = row_placements(layout_.placement, layout_.batch, segments);
    make_runs();
    forward_steps_ = forward_schedule(layout_, ring_.rank(), ulysses_.rank());
    backward_steps_ = backward_schedule(layout_, ring_.rank(), ulysses_.rank());
  }
  segments_.resize(layout_.ring_size());
  for (int block = 0; block < layout_.ring_size(); ++block) {
    const int64_t count = layout_.placement.ring_block_rows(block);
    segments_[block].resize(segments.empty() ? 0 : layout_.batch * count);
    if (segments.empty()) continue;
    for (int64_t row = 0; row < layout_.batch; ++row) {
      take_rows(runs_of(block, row), segments.subspan(row * length, length),
                std::span(segments_[block]).subspan(row * count, count));
    }
  }
}

template <class T>
std::array<int64_t, 4> ParallelAttention<T>::block_extents(int block) const {
  return {layout_.batch, layout_.placement.ring_block_rows(block), kv_heads(), layout_.head_size};
}

template <class T>
View<T, 4> ParallelAttention<T>::block_tensor(int block, bool value) const {
  ODYSSEY_CHECK(block_at_[block] != nullptr || block_elements(block) == 0, "block {} is not here",
                block);
  return {block_at_[block] + (value ? block_elements(block) : 0), block_extents(block)};
}

// dK and dV of a block; zeros when this rank has had none of that block yet.
template <class T>
float* ParallelAttention<T>::gradient_of(int block) {
  if (gradient_at_[block] == nullptr) {
    Buffer<float>& buffer = gradients_[gradient_turn_];
    if (ring_.size() > 1) gradient_turn_ = 1 - gradient_turn_;
    fill_zero(buffer.span().first(2 * block_elements(block)));
    gradient_at_[block] = buffer.data();
  }
  return gradient_at_[block];
}

template <class T>
View<float, 4> ParallelAttention<T>::gradient_tensor(int block, bool value) {
  return {gradient_of(block) + (value ? block_elements(block) : 0), block_extents(block)};
}

template <class T>
BlockMask ParallelAttention<T>::mask(int block, int64_t row) const {
  const auto rows_of = [&](int b) {
    BlockRows rows{runs_of(b, row), {}};
    if (!segments_.empty() && !segments_[b].empty()) {
      const size_t count = segments_[b].size() / layout_.batch;
      rows.segments = std::span(segments_[b]).subspan(row * count, count);
    }
    return rows;
  };
  return {rows_of(ring_.rank()), rows_of(block), layout_.kind, layout_.window};
}

template <class T>
AttentionState ParallelAttention<T>::state(int64_t row) {
  return {View<float, 4>(accumulator_.data(), head_extents())[row],
          View<float, 3>(max_.data(), lse_extents())[row],
          View<float, 3>(sum_.data(), lse_extents())[row]};
}

template <class T>
Poll ParallelAttention<T>::poll() {
  return {[](void* self_pointer) {
            auto* self = static_cast<ParallelAttention<T>*>(self_pointer);
            for (RequestPtr& request : self->shift_requests_) self->ring_.test(request);
            for (RequestPtr& request : self->gradient_requests_) self->ring_.test(request);
          },
          this};
}

template <class T>
void ParallelAttention<T>::start_shift(const Step& step) {
  Buffer<T>& into = travel_[turn_];
  turn_ = 1 - turn_;
  const std::span<T> arriving = into.span().first(gather_counts_[step.arriving]);
  const std::span<const T> leaving(block_at_[step.block], gather_counts_[step.block]);
  shift_requests_.push_back(
      ring_.receive(std::as_writable_bytes(arriving), step.from, Tag::kShift));
  shift_requests_.push_back(ring_.send(std::as_bytes(leaving), step.to, Tag::kShift));
  block_at_[step.arriving] = into.data();
}

template <class T>
void ParallelAttention<T>::await_shift(const Step& step) {
  ring_.wait_all(shift_requests_);
  shift_requests_.clear();
  if (step.block != ring_.rank()) block_at_[step.block] = nullptr;
}

template <class T>
void ParallelAttention<T>::start_gradient_shift(const Step& step) {
  const std::span<const float> leaving(gradient_of(step.block), gather_counts_[step.block]);
  const std::span<float> arriving = arriving_gradient_.span().first(gather_counts_[step.arriving]);
  gradient_requests_.push_back(
      ring_.receive(std::as_writable_bytes(arriving), step.from, Tag::kShiftGradient));
  gradient_requests_.push_back(ring_.send(std::as_bytes(leaving), step.to, Tag::kShiftGradient));
  gradient_at_[step.block] = nullptr;
}

template <class T>
void ParallelAttention<T>::await_gradient(const Step& step) {
  ring_.wait_all(gradient_requests_);
  gradient_requests_.clear();
  const int64_t count = gather_counts_[step.arriving];
  add<float>(arriving_gradient_.span().first(count),
             {gradient_of(step.arriving), static_cast<size_t>(count)});
}

template <class T>
void ParallelAttention<T>::gather() {
  const std::span<const T> mine(block_at_[ring_.rank()], gather_counts_[ring_.rank()]);
  all_gather(ring_, std::as_bytes(mine), std::as_writable_bytes(all_.span()), gather_bytes_);
}

template <class T>
void ParallelAttention<T>::reduce_gradients() {
  const std::span<float> mine(gradient_at_[ring_.rank()], gather_counts_[ring_.rank()]);
  reduce_scatter_sum(ring_, all_gradients_.span(), mine, gather_counts_, reduce_workspace_.span());
}

template <class T>
void ParallelAttention<T>::attend_block(int block, bool last) {
  const View<const T, 4> k = block_tensor(block, false), v = block_tensor(block, true);
  const View<float, 3> lse(lse_.data(), lse_extents());
  const View<T, 4> out(const_cast<T*>(out_.data()), out_.extents(), out_.strides());
  for (int64_t row = 0; row < layout_.batch; ++row) {
    if (!last) {
      attend<T>(q_[row], k[row], v[row], mask(block, row), options_, state(row), poll());
      continue;
    }
    attend_and_finish<T>(q_[row], k[row], v[row], mask(block, row), options_, state(row), sinks_,
                         out[row], lse[row], poll());
    update_max_logits(state(row), max_logits_);
  }
}

template <class T>
void ParallelAttention<T>::attend_block_backward(int block) {
  const View<const T, 4> k = block_tensor(block, false), v = block_tensor(block, true);
  const View<float, 4> dk = gradient_tensor(block, false), dv = gradient_tensor(block, true);
  const View<float, 4> dq(dq_.data(), head_extents());
  const View<const float, 3> delta(delta_.data(), lse_extents());
  for (int64_t row = 0; row < layout_.batch; ++row) {
    attend_backward<T>(q_[row], k[row], v[row], dout_[row], lse()[row], delta[row],
                       mask(block, row), options_, dq[row], dk[row], dv[row], poll());
  }
}

template <class T>
void ParallelAttention<T>::forward(View<const T, 4> q, View<const T, 4> k, View<const T, 4> v,
                                   View<T, 4> out) {
  const int own = ring_.rank();
  const View<T, 4> own_k = block_tensor(own, false), own_v = block_tensor(own, true);
  View<T, 4> out_heads = out;
  q_ = q;
  if (exchange_) {
    q_ = View<const T, 4>(q_heads_.data(), head_extents());
    out_heads = View<T, 4>(out_heads_.data(), head_extents());
  } else {
    copy<T>(k, own_k);
    copy<T>(v, own_v);
  }
  out_ = out_heads;
  for (int64_t row = 0; row < layout_.batch; ++row) reset(state(row));
  max_logits_.assign(query_heads(), -std::numeric_limits<float>::infinity());

  const auto writable = [](View<const T, 4> view) {
    return View<T, 4>(const_cast<T*>(view.data()), view.extents(), view.strides());
  };
  int64_t attends_left = std::ranges::count(forward_steps_, StepKind::kAttend, &Step::kind);
  for (const Step& step : forward_steps_) {
    switch (step.kind) {
      case StepKind::kExchangeIn: {
        const ExchangedTensor<T> tensors[] = {{HeadKind::kQuery, writable(q), writable(q_)},
                                              {HeadKind::kKeyValue, writable(k), own_k},
                                              {HeadKind::kKeyValue, writable(v), own_v}};
        exchange_->template to_heads<T>(tensors);
        break;
      }
      case StepKind::kGather:
        gather();
        break;
      case StepKind::kShift:
        start_shift(step);
        break;
      case StepKind::kAwaitShift:
        await_shift(step);
        break;
      case StepKind::kAttend:
        attend_block(step.block, --attends_left == 0);
        break;
      case StepKind::kExchangeOut: {
        const ExchangedTensor<T> tensors[] = {{HeadKind::kQuery, out, out_heads}};
        exchange_->template to_tokens<T>(tensors);
        break;
      }
      default:
        ODYSSEY_CHECK(false, "step {} in a forward schedule", name_of(step.kind));
    }
  }
}

template <class T>
void ParallelAttention<T>::prepare_backward() {
  const View<float, 3> delta(delta_.data(), lse_extents());
  fill_zero(dq_.span());
  fill_zero(all_gradients_.span());
  dsinks_.assign(sinks_.size(), 0);
  for (int64_t row = 0; row < layout_.batch; ++row) {
    attention_delta<T>(out_[row], dout_[row], delta[row]);
    if (!sinks_.empty()) sink_backward(sinks_, lse()[row], delta[row], dsinks_);
  }
}

template <class T>
void ParallelAttention<T>::backward(View<const T, 4> dout, View<T, 4> dq, View<T, 4> dk,
                                    View<T, 4> dv) {
  const int own = ring_.rank();
  dout_ = dout;
  if (!exchange_) prepare_backward();
  for (const Step& step : backward_steps_) {
    switch (step.kind) {
      case StepKind::kExchangeIn: {
        const View<T, 4> heads(dout_heads_.data(), head_extents());
        const View<T, 4> tokens(const_cast<T*>(dout.data()), dout.extents(), dout.strides());
        const ExchangedTensor<T> tensors[] = {{HeadKind::kQuery, tokens, heads}};
        exchange_->template to_heads<T>(tensors);
        dout_ = heads;
        prepare_backward();
        break;
      }
      case StepKind::kShift:
        start_shift(step);
        break;
      case StepKind::kAwaitShift:
        await_shift(step);
        break;
      case StepKind::kAttend:
        attend_block_backward(step.block);
        break;
      case StepKind::kShiftGradient:
        start_gradient_shift(step);
        break;
      case StepKind::kAwaitGradient:
        await_gradient(step);
        break;
      case StepKind::kReduceGradients:
        reduce_gradients();
        break;
      case StepKind::kExchangeOut: {
        // dq in type T, rounded once; dk and dv in fp32, since copies of a head are summed at home.
        const View<T, 4> dq_heads(dout_heads_.data(), head_extents());
        convert<float, T>(View<const float, 4>(dq_.data(), head_extents()), dq_heads);
        const ExchangedTensor<T> query[] = {{HeadKind::kQuery, dq, dq_heads}};
        exchange_->template to_tokens<T>(query);
        const View<float, 4> dk_tokens(dkv_tokens_.data(), dk.extents());
        const View<float, 4> dv_tokens(dkv_tokens_.data() + dk.size(), dv.extents());
        const ExchangedTensor<float> keys[] = {
            {HeadKind::kKeyValue, dk_tokens, gradient_tensor(own, false)},
            {HeadKind::kKeyValue, dv_tokens, gradient_tensor(own, true)}};
        exchange_->template to_tokens<float>(keys);
        convert<float, T>(dk_tokens, dk);
        convert<float, T>(dv_tokens, dv);
        break;
      }
      default:
        ODYSSEY_CHECK(false, "step {} in a backward schedule", name_of(step.kind));
    }
  }
  if (!exchange_) {
    convert<float, T>(View<const float, 4>(dq_.data(), head_extents()), dq);
    convert<float, T>(gradient_tensor(own, false), dk);
    convert<float, T>(gradient_tensor(own, true), dv);
  }
  if (!layout_.outer_gather) gradient_at_[own] = nullptr;
}

template class ParallelAttention<float>;
template class ParallelAttention<bf16>;

}  // namespace odyssey
