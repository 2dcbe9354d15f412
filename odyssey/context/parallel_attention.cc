// SPDX-License-Identifier: Apache-2.0
#include "odyssey/context/parallel_attention.h"

#include <algorithm>
#include <limits>
#include <utility>

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
      blocks_(layout_, options.masks, ring, ulysses.rank()) {
  ODYSSEY_CHECK(ring.size() == layout.ring_size() && ulysses.size() == layout.ulysses_size(),
                "groups of {}x{} for a layout of {}x{}", ring.size(), ulysses.size(),
                layout.ring_size(), layout.ulysses_size());
  options_.scale = options.scale;
  options_.soft_cap = options.soft_cap;
  options_.record_max = options.record_max_logits;
  options_.queries_per_kv = layout.heads.queries_per_kv();
  options_.phase = layout.heads.phase(ulysses.rank());
  for (const MaskRule& mask : options.masks) plans_.push_back({mask, {}, {}, {}, {}});
  if (plans_.empty()) plans_.push_back({{layout.kind, layout.window}, {}, {}, {}, {}});
  make_steps();
  make_calls({});
  make_buffers();
}

template <class T>
void ParallelAttention<T>::make_steps() {
  for (MaskPlan& plan : plans_) {
    const AttentionLayout layout = with_mask(layout_, plan.mask);
    plan.forward = forward_schedule(layout, ring_.rank(), ulysses_.rank());
    plan.backward = backward_schedule(layout, ring_.rank(), ulysses_.rank());
  }
}

template <class T>
void ParallelAttention<T>::add_rows(int block, const std::vector<RowRange>& rows,
                                    Blocks& blocks) const {
  blocks.blocks.push_back(block);
  const std::vector<std::vector<Run>> all = block_runs(layout_, block);
  blocks.runs.resize(all.size());
  for (size_t row = 0; row < all.size(); ++row) {
    const std::vector<Run> runs = runs_of(all[row], rows);
    blocks.runs[row].insert(blocks.runs[row].end(), runs.begin(), runs.end());
  }
}

// Attend steps that follow each other are one call, up to the number of hops that go together: the
// scratch of the kernels grows with the rows. The own block is one of its own, since others arrive
// meanwhile and its dK and dV are elsewhere than theirs.
template <class T>
auto ParallelAttention<T>::kernel_calls(const std::vector<Step>& steps) const
    -> std::vector<Blocks> {
  std::vector<Blocks> calls;
  bool begins = true;
  for (const Step& step : steps) {
    const bool attends = step.kind == StepKind::kAttend;
    if (attends) {
      if (begins || std::ssize(calls.back().blocks) == layout_.hops_at_once) calls.emplace_back();
      add_rows(step.block, step.rows, calls.back());
    }
    begins = !attends || step.block == ring_.rank();
  }
  return calls;
}

// Behind a gather all blocks lie side by side, the own one first: one call, and the accumulator
// never goes to memory.
template <class T>
auto ParallelAttention<T>::one_kernel_call(const std::vector<Step>& steps) const
    -> std::vector<Blocks> {
  Blocks all;
  for (const Step& step : steps) {
    if (step.kind == StepKind::kAttend) add_rows(step.block, step.rows, all);
  }
  if (all.blocks.empty()) return {};
  return {std::move(all)};
}

template <class T>
void ParallelAttention<T>::take_segments(std::span<const int32_t> segments, Blocks& blocks) const {
  if (segments.empty()) return;
  const int64_t length = layout_.placement.sequence_length(), rows = count_rows(blocks.runs[0]);
  blocks.segments.resize(layout_.batch * rows);
  for (int64_t row = 0; row < layout_.batch; ++row) {
    take_rows(blocks.runs[blocks.runs.size() == 1 ? 0 : row],
              segments.subspan(row * length, length),
              std::span(blocks.segments).subspan(row * rows, rows));
  }
}

template <class T>
void ParallelAttention<T>::make_calls(std::span<const int32_t> segments) {
  own_ = {};
  add_rows(ring_.rank(), {{0, rows()}}, own_);
  take_segments(segments, own_);
  for (MaskPlan& plan : plans_) {
    plan.forward_calls =
        layout_.outer_gather ? one_kernel_call(plan.forward) : kernel_calls(plan.forward);
    plan.backward_calls = kernel_calls(plan.backward);
    for (std::vector<Blocks>* calls : {&plan.forward_calls, &plan.backward_calls}) {
      for (Blocks& call : *calls) take_segments(segments, call);
    }
  }
}

template <class T>
void ParallelAttention<T>::use_mask(int64_t mask) {
  ODYSSEY_CHECK(mask >= 0 && mask < static_cast<int64_t>(plans_.size()), "mask {} of {}", mask,
                plans_.size());
  plan_ = static_cast<size_t>(mask);
}

template <class T>
void ParallelAttention<T>::use_sinks(std::span<const float> sinks) {
  sinks_.clear();
  if (sinks.empty()) return;
  ODYSSEY_CHECK(static_cast<int64_t>(sinks.size()) == layout_.heads.query_heads(),
                "{} sinks for {} heads", sinks.size(), layout_.heads.query_heads());
  const auto first = sinks.begin() + first_head();
  sinks_.assign(first, first + query_heads());
}

template <class T>
void ParallelAttention<T>::make_buffers() {
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
}

template <class T>
int64_t ParallelAttention<T>::workspace_bytes(const AttentionLayout& layout,
                                              std::span<const MaskRule> masks) {
  // Ring rank 0 and Ulysses rank 0 have the longest parts.
  const HeadMap& heads = layout.heads;
  const int64_t rows = layout.batch * layout.placement.most_ring_block_rows();
  const int64_t query = rows * heads.query_count(0) * layout.head_size;
  int64_t elements = 0, floats = 2 * query + 4 * rows * heads.query_count(0), exchange = 0;
  if (layout.ulysses_size() > 1) {
    for (int u = 0; u < layout.ulysses_size(); ++u) {
      exchange = std::max(exchange, HeadExchange::workspace_bytes(layout, 0, u));
    }
    elements += 3 * query;
    floats +=
        2 * layout.batch * layout.placement.most_local_rows() * heads.kv_heads() * layout.head_size;
  }
  const RowsAtOnce at_once = most_rows_at_once(layout, masks);
  return elements * static_cast<int64_t>(sizeof(T)) + floats * 4 + exchange +
         most_block_buffer_bytes(layout, masks) +
         attention_scratch_bytes(at_once.forward, at_once.backward, layout.head_size);
}

template <class T>
void ParallelAttention<T>::set_segments(std::span<const int32_t> segments) {
  layout_ = of_batch(std::move(layout_), segments);
  if (layout_.follows_documents()) make_steps();
  make_calls(segments);
}

template <class T>
BlockMask ParallelAttention<T>::mask(const Blocks& blocks, int64_t row) const {
  const auto rows_of = [&](const Blocks& of) {
    const size_t count = of.segments.size() / layout_.batch;
    return BlockRows{of.runs[of.runs.size() == 1 ? 0 : row],
                     std::span(of.segments).subspan(row * count, count)};
  };
  const MaskRule& rule = plans_[plan_].mask;
  return {rows_of(own_), rows_of(blocks), rule.kind, rule.window};
}

template <class T>
AttentionState ParallelAttention<T>::state(int64_t row) {
  return {View<float, 4>(accumulator_.data(), head_extents())[row],
          View<float, 3>(max_.data(), lse_extents())[row],
          View<float, 3>(sum_.data(), lse_extents())[row]};
}

template <class T>
Poll ParallelAttention<T>::poll() {
  return {
      [](void* self_pointer) { static_cast<ParallelAttention<T>*>(self_pointer)->blocks_.poll(); },
      this};
}

template <class T>
void ParallelAttention<T>::attend_blocks(const Blocks& blocks, bool last) {
  const View<const T, 4> k = blocks_.key(blocks.blocks), v = blocks_.value(blocks.blocks);
  const View<float, 3> lse(lse_.data(), lse_extents());
  const View<T, 4> out(const_cast<T*>(out_.data()), out_.extents(), out_.strides());
  for (int64_t row = 0; row < layout_.batch; ++row) {
    const BlockMask mask = this->mask(blocks, row);
    if (!last) {
      attend<T>(q_[row], k[row], v[row], mask, options_, state(row), poll());
      continue;
    }
    attend_and_finish<T>(q_[row], k[row], v[row], mask, options_, state(row), sinks_, out[row],
                         lse[row], poll());
    if (options_.record_max) update_max_logits(state(row), max_logits_);
  }
}

template <class T>
void ParallelAttention<T>::attend_blocks_backward(const Blocks& blocks) {
  const View<const T, 4> k = blocks_.key(blocks.blocks), v = blocks_.value(blocks.blocks);
  const View<float, 4> dk = blocks_.key_gradient(blocks.blocks),
                       dv = blocks_.value_gradient(blocks.blocks);
  const View<float, 4> dq(dq_.data(), head_extents());
  const View<const float, 3> delta(delta_.data(), lse_extents());
  // The own block comes first and has all of dq; each block has its dk and dv from one call.
  const bool first = blocks.blocks.front() == ring_.rank();
  for (int64_t row = 0; row < layout_.batch; ++row) {
    const BlockMask mask = this->mask(blocks, row);
    attend_backward<T>(q_[row], k[row], v[row], dout_[row], lse()[row], delta[row], mask, options_,
                       {dq[row], dk[row], dv[row], first, /*fresh_keys=*/true}, poll());
  }
}

template <class T>
void ParallelAttention<T>::forward(View<const T, 4> q, View<const T, 4> k, View<const T, 4> v,
                                   View<T, 4> out) {
  const View<T, 4> own_k = blocks_.key(own_.blocks), own_v = blocks_.value(own_.blocks);
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
  blocks_.begin_forward();
  for (int64_t row = 0; row < layout_.batch; ++row) reset(state(row));
  if (options_.record_max) {
    max_logits_.assign(query_heads(), -std::numeric_limits<float>::infinity());
  }

  const auto writable = [](View<const T, 4> view) {
    return View<T, 4>(const_cast<T*>(view.data()), view.extents(), view.strides());
  };
  const MaskPlan& plan = plans_[plan_];
  auto call = plan.forward_calls.begin();
  for (const Step& step : plan.forward) {
    switch (step.kind) {
      case StepKind::kExchangeIn: {
        const ExchangedTensor<T> tensors[] = {{HeadKind::kQuery, writable(q), writable(q_)},
                                              {HeadKind::kKeyValue, writable(k), own_k},
                                              {HeadKind::kKeyValue, writable(v), own_v}};
        exchange_->template to_heads<T>(tensors);
        break;
      }
      case StepKind::kGather:
        blocks_.gather(step);
        break;
      case StepKind::kShift:
        blocks_.start_shift(step);
        break;
      case StepKind::kAwaitShift:
        blocks_.await_shift();
        break;
      case StepKind::kAttend:
        // The first block of a call stands for all of them.
        if (call == plan.forward_calls.end() || step.block != call->blocks.front()) break;
        attend_blocks(*call, call + 1 == plan.forward_calls.end());
        ++call;
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
  dsinks_.assign(sinks_.size(), 0);
  for (int64_t row = 0; row < layout_.batch; ++row) {
    attention_delta<T>(out_[row], dout_[row], delta[row]);
    if (!sinks_.empty()) sink_backward(sinks_, lse()[row], delta[row], dsinks_);
  }
}

template <class T>
void ParallelAttention<T>::backward(View<const T, 4> dout, View<T, 4> dq, View<T, 4> dk,
                                    View<T, 4> dv) {
  dout_ = dout;
  blocks_.begin_backward();
  if (!exchange_) prepare_backward();
  const MaskPlan& plan = plans_[plan_];
  auto call = plan.backward_calls.begin();
  for (const Step& step : plan.backward) {
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
        blocks_.start_shift(step);
        break;
      case StepKind::kAwaitShift:
        blocks_.await_shift();
        break;
      case StepKind::kAttend:
        if (call == plan.backward_calls.end() || step.block != call->blocks.front()) break;
        attend_blocks_backward(*call++);
        break;
      case StepKind::kShiftGradient:
        blocks_.start_gradient(step);
        break;
      case StepKind::kAwaitGradient:
        blocks_.await_gradient(step);
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
            {HeadKind::kKeyValue, dk_tokens, blocks_.key_gradient(own_.blocks)},
            {HeadKind::kKeyValue, dv_tokens, blocks_.value_gradient(own_.blocks)}};
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
    convert<float, T>(blocks_.key_gradient(own_.blocks), dk);
    convert<float, T>(blocks_.value_gradient(own_.blocks), dv);
  }
}

template class ParallelAttention<float>;
template class ParallelAttention<bf16>;

}  // namespace odyssey
