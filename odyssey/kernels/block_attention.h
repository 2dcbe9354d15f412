// SPDX-License-Identifier: Apache-2.0
// Attends local queries to one block of keys and values, forward and backward. Knows nothing of
// ranks: the running softmax (AttentionState) goes in and comes out, so the blocks of a ring are
// attended to one after the other without a merge pass, and the order of blocks changes only
// rounding.
//
// One batch row: q [Tq, H, D], k and v [Tk, K, D]; T is float or bf16; the last axis is contiguous.
// Order of operations in a score: scale * q.k, soft cap c * tanh(s / c), mask, softmax.
// Sources: Milakov & Gimelshein, arXiv 1805.02867 (online softmax); Dao, arXiv 2307.08691,
// section 3.1 (blocked forward and backward).
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "odyssey/base/bf16.h"
#include "odyssey/base/view.h"
#include "odyssey/sequence/block_mask.h"

namespace odyssey {

struct AttentionOptions {
  float scale = 1;     // usually 1 / sqrt(D)
  float soft_cap = 0;  // 0: none
  // AttentionState::max ends as the largest visible score; matrix tiles are faster without.
  bool record_max = false;
  // Grouped queries: query head h of the model uses key/value head h / queries_per_kv. A rank may
  // hold any range of heads; phase is (model index of its first query head) % queries_per_kv.
  int64_t queries_per_kv = 1;
  int64_t phase = 0;

  int64_t kv_head_of(int64_t local_query_head) const {
    return (phase + local_query_head) / queries_per_kv;
  }
  // The first of `heads` local query heads that does not use a key/value head before `kv_head`.
  int64_t first_query_head(int64_t kv_head, int64_t heads) const {
    return std::clamp<int64_t>(kv_head * queries_per_kv - phase, 0, heads);
  }
};

// The running softmax of every query row, all fp32. With m = max: sum = sum exp(s - m), accumulator
// = sum exp(s - m) v. m is the largest visible score so far, or, in bf16 on matrix tiles without
// record_max, a score near it (sum <= 2^40). While a row has seen nothing its sum is 0, its
// accumulator holds nothing and is not read.
struct AttentionState {
  View<float, 3> accumulator;  // [Tq, H, D]
  View<float, 2> max;          // [H, Tq]
  View<float, 2> sum;          // [H, Tq]
};

// `max` of a row that has seen nothing. Finite, so that exp(max - max) stays 1 and never NaN.
inline constexpr float kNothingSeen = -1e30f;

// Called between tiles by the thread that called the kernel, so that transfers make progress.
struct Poll {
  void (*call)(void* context) = nullptr;
  void* context = nullptr;
  void operator()() const {
    if (call != nullptr) call(context);
  }
};

// Sets a state to "nothing seen"; does not touch the accumulator.
void reset(const AttentionState& state);

// state <- state after also attending to this block.
template <class T>
void attend(View<const T, 3> q, View<const T, 3> k, View<const T, 3> v, const BlockMask& mask,
            const AttentionOptions& options, const AttentionState& state, const Poll& poll = {});

// out [Tq, H, D] = accumulator / sum, lse [H, Tq] = max + log(sum), natural log. A row that saw
// nothing gives out 0 and lse -inf. sinks [H] (may be empty): a logit per head that joins the
// softmax of every row and has no value; a row that saw nothing else then has lse = sink.
template <class T>
void finish(const AttentionState& state, std::span<const float> sinks, View<T, 3> out,
            View<float, 2> lse);

// attend to the last block, or the only one, and then finish: the bits of both. Where bf16 runs on
// matrix tiles the accumulator, four times the size of `out` on its way to memory and back, is not
// written: afterwards state.accumulator holds nothing of use, max and sum are those of attend; and
// an `out` below the normal numbers is 0.
template <class T>
void attend_and_finish(View<const T, 3> q, View<const T, 3> k, View<const T, 3> v,
                       const BlockMask& mask, const AttentionOptions& options,
                       const AttentionState& state, std::span<const float> sinks, View<T, 3> out,
                       View<float, 2> lse, const Poll& poll = {});

// delta [H, Tq] = sum over D of dout * out, what the softmax backward subtracts.
template <class T>
void attention_delta(View<const T, 3> out, View<const T, 3> dout, View<float, 2> delta);

// Where the backward of a block puts its part: sums over blocks, so fp32. What is fresh holds
// nothing yet and is written, with zeros where this block has no part; the rest is added to.
struct AttentionGradients {
  View<float, 3> dq;      // [Tq, H, D]
  View<float, 3> dk, dv;  // [Tk, K, D]
  bool fresh_queries = false, fresh_keys = false;
};

// lse and delta are those of the finished row, over all blocks.
template <class T>
void attend_backward(View<const T, 3> q, View<const T, 3> k, View<const T, 3> v,
                     View<const T, 3> dout, View<const float, 2> lse, View<const float, 2> delta,
                     const BlockMask& mask, const AttentionOptions& options,
                     const AttentionGradients& gradients, const Poll& poll = {});

// Adds to dsinks [H]: -sum over rows of exp(sink - lse) * delta.
void sink_backward(std::span<const float> sinks, View<const float, 2> lse,
                   View<const float, 2> delta, std::span<float> dsinks);

// Bytes that a rank's first calls take as scratch and keep, with up to so many keys a call.
int64_t attention_scratch_bytes(int64_t forward_keys, int64_t backward_keys, int64_t head_size);

// most[h] <- max(most[h], largest visible score of head h in the state); stays where nothing was
// seen. The state must come of calls with record_max.
void update_max_logits(const AttentionState& state, std::span<float> most);

}  // namespace odyssey
