// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/block_attention_ref.h"

#include <cmath>

namespace odyssey::reference {
namespace {

bool sees(const AttentionRows& rows, int64_t query, int64_t key) {
  const int32_t position = rows.position()[key];
  return rows.least()[query] <= position && position <= rows.most()[query] &&
         rows.query_segment()[query] == rows.key_segment()[key] && rows.key_segment()[key] != 0;
}

template <class T>
float dot(View<const T, 3> a, int64_t row_a, int64_t head_a, View<const T, 3> b, int64_t row_b,
          int64_t head_b) {
  float sum = 0;
  for (int64_t d = 0; d < a.extent(2); ++d) {
    sum += to_float(a(row_a, head_a, d)) * to_float(b(row_b, head_b, d));
  }
  return sum;
}

// The score after scale and cap.
float capped(float score, const AttentionOptions& options) {
  const float scaled = options.scale * score;
  if (options.soft_cap == 0) return scaled;
  return options.soft_cap * std::tanh(scaled / options.soft_cap);
}

}  // namespace

template <class T>
void attend(View<const T, 3> q, View<const T, 3> k, View<const T, 3> v, const AttentionRows& rows,
            const AttentionOptions& options, const AttentionState& state) {
  for (int64_t h = 0; h < q.extent(1); ++h) {
    const int64_t g = options.kv_head_of(h);
    for (int64_t i = 0; i < q.extent(0); ++i) {
      float& max = state.max(h, i);
      float& sum = state.sum(h, i);
      for (int64_t j = 0; j < k.extent(0); ++j) {
        if (!sees(rows, i, j)) continue;
        const float s = capped(dot(q, i, h, k, j, g), options);
        if (s > max) {
          // What was summed so far was relative to a smaller maximum.
          const float shrink = std::exp(max - s);
          sum *= shrink;
          for (int64_t d = 0; d < q.extent(2); ++d) state.accumulator(i, h, d) *= shrink;
          max = s;
        }
        const float p = std::exp(s - max);
        sum += p;
        for (int64_t d = 0; d < q.extent(2); ++d) {
          state.accumulator(i, h, d) += p * to_float(v(j, g, d));
        }
      }
    }
  }
}

template <class T>
void attend_backward(View<const T, 3> q, View<const T, 3> k, View<const T, 3> v,
                     View<const T, 3> dout, View<const float, 2> lse, View<const float, 2> delta,
                     const AttentionRows& rows, const AttentionOptions& options, View<float, 3> dq,
                     View<float, 3> dk, View<float, 3> dv) {
  for (int64_t h = 0; h < q.extent(1); ++h) {
    const int64_t g = options.kv_head_of(h);
    for (int64_t i = 0; i < q.extent(0); ++i) {
      for (int64_t j = 0; j < k.extent(0); ++j) {
        if (!sees(rows, i, j)) continue;
        const float s = capped(dot(q, i, h, k, j, g), options);
        const float p = std::exp(s - lse(h, i));    // forward: p = exp(s) / sum exp(s)
        const float dp = dot(dout, i, h, v, j, g);  // forward: out += p v
        float ds = p * (dp - delta(h, i));          // forward: softmax
        if (options.soft_cap != 0) {                // forward: s = c tanh(x / c)
          ds *= 1 - (s / options.soft_cap) * (s / options.soft_cap);
        }
        ds *= options.scale;  // forward: x = scale * q.k
        for (int64_t d = 0; d < q.extent(2); ++d) {
          dv(j, g, d) += p * to_float(dout(i, h, d));
          dq(i, h, d) += ds * to_float(k(j, g, d));
          dk(j, g, d) += ds * to_float(q(i, h, d));
        }
      }
    }
  }
}

#define ODYSSEY_INSTANTIATE(T)                                                                    \
  template void attend<T>(View<const T, 3>, View<const T, 3>, View<const T, 3>,                   \
                          const AttentionRows&, const AttentionOptions&, const AttentionState&);  \
  template void attend_backward<T>(View<const T, 3>, View<const T, 3>, View<const T, 3>,          \
                                   View<const T, 3>, View<const float, 2>, View<const float, 2>,  \
                                   const AttentionRows&, const AttentionOptions&, View<float, 3>, \
                                   View<float, 3>, View<float, 3>);
ODYSSEY_INSTANTIATE(float)
ODYSSEY_INSTANTIATE(bf16)
#undef ODYSSEY_INSTANTIATE

}  // namespace odyssey::reference
