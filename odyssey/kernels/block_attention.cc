// SPDX-License-Identifier: Apache-2.0
// Checks of block attention, its dispatch (plain loops, vectors or matrix tiles, after writing the
// mask out per row), and what is done once a row.
#include "odyssey/kernels/block_attention.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/attention_amx.h"
#include "odyssey/kernels/attention_finish.h"
#include "odyssey/kernels/attention_rows.h"
#include "odyssey/kernels/attention_simd.h"
#include "odyssey/kernels/attention_tile.h"
#include "odyssey/kernels/block_attention_ref.h"
#include "odyssey/kernels/isa.h"
#include "odyssey/kernels/row_kernels.h"

namespace odyssey {
namespace {

// bf16 goes to matrix tiles where the processor has them.
template <class T>
bool runs_on_matrix_tiles(int64_t head_size) {
#if defined(__x86_64__)
  return std::is_same_v<T, bf16> && isa_in_use() == Isa::kAmx && head_size <= amx::kMostHeadSize;
#else
  (void)head_size;
  return false;
#endif
}

// Memory that a rank keeps from call to call.
AttentionRows& rank_rows() {
  thread_local AttentionRows rows;
  return rows;
}

template <class T>
void check_shapes(View<const T, 3> q, View<const T, 3> k, View<const T, 3> v, const BlockMask& mask,
                  const AttentionOptions& options) {
  ODYSSEY_CHECK(q.extent(2) == k.extent(2) && q.extent(2) == v.extent(2), "head sizes {} {} {}",
                q.extent(2), k.extent(2), v.extent(2));
  ODYSSEY_CHECK(k.extent(0) == v.extent(0) && k.extent(1) == v.extent(1), "keys {} values {}",
                k.extent(0), v.extent(0));
  ODYSSEY_CHECK(count_rows(mask.queries.runs) == q.extent(0), "{} rows, mask of {}", q.extent(0),
                count_rows(mask.queries.runs));
  ODYSSEY_CHECK(count_rows(mask.keys.runs) == k.extent(0), "{} rows, mask of {}", k.extent(0),
                count_rows(mask.keys.runs));
  ODYSSEY_CHECK(q.extent(1) == 0 || options.kv_head_of(q.extent(1) - 1) < k.extent(1),
                "query head {} needs KV head {} of {}", q.extent(1) - 1,
                options.kv_head_of(q.extent(1) - 1), k.extent(1));
  for (const auto* view : {&q, &k, &v}) {
    ODYSSEY_CHECK(view->extent(2) == 1 || view->stride(2) == 1, "the last axis has stride {}",
                  view->stride(2));
  }
}

// Calls body(row, head) for all of them; rows are spread over the threads.
template <class Body>
void for_rows_and_heads(int64_t rows, int64_t heads, const Body& body) {
  parallel_ranges(rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t h = 0; h < heads; ++h) body(i, h);
    }
  });
}

// Zeros for the accumulators that hold nothing: the kernels below scale and add to all rows.
void clear_unseen(const AttentionState& state) {
  for_rows_and_heads(state.max.extent(1), state.max.extent(0), [&](int64_t i, int64_t h) {
    if (state.sum(h, i) != 0) return;
    std::fill_n(&state.accumulator(i, h, 0), state.accumulator.extent(2), 0.0f);
  });
}

// Zeros for what is fresh: then it can be added to.
void clear_fresh(const AttentionGradients& gradients) {
  const auto clear = [](View<float, 3> x) {
    for_rows_and_heads(x.extent(0), x.extent(1),
                       [&](int64_t i, int64_t h) { std::fill_n(&x(i, h, 0), x.extent(2), 0.0f); });
  };
  if (gradients.fresh_queries) clear(gradients.dq);
  if (!gradients.fresh_keys) return;
  clear(gradients.dk);
  clear(gradients.dv);
}

}  // namespace

void reset(const AttentionState& state) {
  for (int64_t h = 0; h < state.max.extent(0); ++h) {
    for (int64_t i = 0; i < state.max.extent(1); ++i) {
      state.max(h, i) = kNothingSeen;
      state.sum(h, i) = 0;
    }
  }
}

template <class T>
void attend(View<const T, 3> q, View<const T, 3> k, View<const T, 3> v, const BlockMask& mask,
            const AttentionOptions& options, const AttentionState& state, const Poll& poll) {
  check_shapes(q, k, v, mask, options);
  if (q.size() == 0 || k.size() == 0) return;
  AttentionRows& rows = rank_rows();
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, bf16>) {
    if (runs_on_matrix_tiles<T>(q.extent(2))) {
      rows.fill(mask, amx::kQueries, amx::kKeys);
      return amx::attend(q, k, v, rows, options, state, nullptr, poll);
    }
  }
#endif
  rows.fill(mask, kQueryTile, kKeyTile);
  clear_unseen(state);
  if (isa_in_use() == Isa::kRef) return reference::attend(q, k, v, rows, options, state);

  simd::attend(q, k, v, rows, options, state, poll);
}

template <class T>
void attend_backward(View<const T, 3> q, View<const T, 3> k, View<const T, 3> v,
                     View<const T, 3> dout, View<const float, 2> lse, View<const float, 2> delta,
                     const BlockMask& mask, const AttentionOptions& options,
                     const AttentionGradients& gradients, const Poll& poll) {
  check_shapes(q, k, v, mask, options);
  if (q.size() == 0 || k.size() == 0) return clear_fresh(gradients);
  AttentionRows& rows = rank_rows();
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, bf16>) {
    if (runs_on_matrix_tiles<T>(q.extent(2))) {
      rows.fill(mask, amx::kQueries, amx::kKeys);
      return amx::attend_backward(q, k, v, dout, lse, delta, rows, options, gradients, poll);
    }
  }
#endif
  clear_fresh(gradients);
  const View<float, 3> dq = gradients.dq, dk = gradients.dk, dv = gradients.dv;
  rows.fill(mask, kQueryTile, kKeyTile);
  if (isa_in_use() == Isa::kRef) {
    return reference::attend_backward(q, k, v, dout, lse, delta, rows, options, dq, dk, dv);
  }
  simd::attend_backward(q, k, v, dout, lse, delta, rows, options, dq, dk, dv, poll);
}

template <class T>
void finish(const AttentionState& state, std::span<const float> sinks, View<T, 3> out,
            View<float, 2> lse) {
  for_rows_and_heads(out.extent(0), out.extent(1), [&](int64_t i, int64_t h) {
    const float factor = finish_row(state, sinks, h, i, lse(h, i));
    T* to = &out(i, h, 0);
    if (factor == 0) {
      std::fill_n(to, out.extent(2), T{});
      return;
    }
    const float* from = &state.accumulator(i, h, 0);
    for (int64_t d = 0; d < out.extent(2); ++d) to[d] = T(from[d] * factor);
  });
}

template <class T>
void attend_and_finish(View<const T, 3> q, View<const T, 3> k, View<const T, 3> v,
                       const BlockMask& mask, const AttentionOptions& options,
                       const AttentionState& state, std::span<const float> sinks, View<T, 3> out,
                       View<float, 2> lse, const Poll& poll) {
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, bf16>) {
    if (runs_on_matrix_tiles<T>(q.extent(2)) && q.size() > 0 && k.size() > 0) {
      check_shapes(q, k, v, mask, options);
      AttentionRows& rows = rank_rows();
      rows.fill(mask, amx::kQueries, amx::kKeys);
      const amx::Output output{sinks, out, lse};
      return amx::attend(q, k, v, rows, options, state, &output, poll);
    }
  }
#endif
  attend<T>(q, k, v, mask, options, state, poll);
  finish<T>(state, sinks, out, lse);
}

template <class T>
void attention_delta(View<const T, 3> out, View<const T, 3> dout, View<float, 2> delta) {
  const auto dot = stored_rows<T>(row_kernels()).dot;
  for_rows_and_heads(out.extent(0), out.extent(1), [&](int64_t i, int64_t h) {
    delta(h, i) = dot(&out(i, h, 0), &dout(i, h, 0), out.extent(2));
  });
}

void sink_backward(std::span<const float> sinks, View<const float, 2> lse,
                   View<const float, 2> delta, std::span<float> dsinks) {
  for (int64_t h = 0; h < lse.extent(0); ++h) {
    double sum = 0;
    for (int64_t i = 0; i < lse.extent(1); ++i) {
      sum += double{std::exp(sinks[h] - lse(h, i))} * double{delta(h, i)};
    }
    dsinks[h] -= static_cast<float>(sum);
  }
}

void update_max_logits(const AttentionState& state, std::span<float> most) {
  for (int64_t h = 0; h < state.max.extent(0); ++h) {
    for (int64_t i = 0; i < state.max.extent(1); ++i) {
      if (state.sum(h, i) > 0) most[h] = std::max(most[h], state.max(h, i));
    }
  }
}

int64_t attention_scratch_bytes(int64_t forward_keys, int64_t backward_keys, int64_t head_size) {
#if defined(__x86_64__)
  if (runs_on_matrix_tiles<bf16>(head_size)) {
    return amx::scratch_bytes(forward_keys, backward_keys, head_size);
  }
#endif
  return simd::scratch_bytes(forward_keys, backward_keys, head_size);
}

#define ODYSSEY_INSTANTIATE(T)                                                                    \
  template void attend<T>(View<const T, 3>, View<const T, 3>, View<const T, 3>, const BlockMask&, \
                          const AttentionOptions&, const AttentionState&, const Poll&);           \
  template void attend_backward<T>(View<const T, 3>, View<const T, 3>, View<const T, 3>,          \
                                   View<const T, 3>, View<const float, 2>, View<const float, 2>,  \
                                   const BlockMask&, const AttentionOptions&,                     \
                                   const AttentionGradients&, const Poll&);                       \
  template void finish<T>(const AttentionState&, std::span<const float>, View<T, 3>,              \
                          View<float, 2>);                                                        \
  template void attend_and_finish<T>(View<const T, 3>, View<const T, 3>, View<const T, 3>,        \
                                     const BlockMask&, const AttentionOptions&,                   \
                                     const AttentionState&, std::span<const float>, View<T, 3>,   \
                                     View<float, 2>, const Poll&);                                \
  template void attention_delta<T>(View<const T, 3>, View<const T, 3>, View<float, 2>);
ODYSSEY_INSTANTIATE(float)
ODYSSEY_INSTANTIATE(bf16)
#undef ODYSSEY_INSTANTIATE

}  // namespace odyssey
