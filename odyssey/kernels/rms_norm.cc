// SPDX-License-Identifier: Apache-2.0
// Rows are (token, head) pairs; [T, E] is one head a token.
#include "odyssey/kernels/rms_norm.h"

#include <algorithm>
#include <cmath>

#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/fixed_order.h"
#include "odyssey/kernels/store.h"

namespace odyssey {
namespace {

template <class T>
View<T, 3> one_head(View<T, 2> view) {
  return {view.data(), {view.extent(0), 1, view.extent(1)}, {view.stride(0), 0, view.stride(1)}};
}

template <class T>
T* row_of(const View<T, 3>& view, int64_t row) {
  const int64_t heads = view.extent(1);
  return view.data() + row / heads * view.stride(0) + row % heads * view.stride(1);
}

template <class T>
void check_arguments(Input<T, 3> x, InputSpan<T> w, int64_t inverses) {
  check_rows_contiguous(x, "x");
  ODYSSEY_CHECK(static_cast<int64_t>(w.size()) == x.extent(2), "{} weights for width {}", w.size(),
                x.extent(2));
  ODYSSEY_CHECK(inverses == x.extent(0) * x.extent(1), "{} inverse values for {} rows", inverses,
                x.extent(0) * x.extent(1));
}

template <class T>
float inverse_rms_of(const T* x, int64_t width, float epsilon) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < width; ++i) sum += to_float(x[i]) * to_float(x[i]);
  return 1.0f / std::sqrt(sum / static_cast<float>(width) + epsilon);
}

// y[i] = x[i] r (o + w[i]) with r = inverse_rms and o = 0 or 1 gives
// dx[i] = r g[i] - x[i] r^3 / E * sum over j of g[j] x[j], where g[i] = dy[i] (o + w[i]);
// dw[i] = dy[i] x[i] r.
template <bool Accumulate, class T>
void backward_row(const T* dy, const T* x, const T* w, float offset, float inverse, int64_t width,
                  T* dx, float* dw) {
  float dot = 0;
#pragma omp simd reduction(+ : dot)
  for (int64_t i = 0; i < width; ++i) {
    dot += to_float(dy[i]) * (offset + to_float(w[i])) * to_float(x[i]);
  }
  const float shrink = dot * inverse * inverse / static_cast<float>(width);

#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    const float g = to_float(dy[i]), value = to_float(x[i]);
    dw[i] += g * value * inverse;
    const float gradient = inverse * (g * (offset + to_float(w[i])) - value * shrink);
    store(dx[i], (Accumulate ? to_float(dx[i]) : 0.0f) + gradient);
  }
}

}  // namespace

template <Storage T>
void rms_norm(Input<T, 3> x, InputSpan<T> w, const RmsNormOptions& options, View<T, 3> y,
              std::span<float> inverse_rms) {
  check_arguments<T>(x, w, static_cast<int64_t>(inverse_rms.size()));
  check_same_shape(x, y, "x and y");
  check_rows_contiguous(y, "y");
  const int64_t width = x.extent(2);
  const float offset = options.add_one ? 1.0f : 0.0f;
  const T* weight = w.data();
  const int64_t grain = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, width));
  parallel_ranges(x.extent(0) * x.extent(1), grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* in = row_of(x, row);
      T* out = row_of(y, row);
      const float inverse = inverse_rms_of(in, width, options.epsilon);
      inverse_rms[static_cast<size_t>(row)] = inverse;
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) {
        store(out[i], to_float(in[i]) * inverse * (offset + to_float(weight[i])));
      }
    }
  });
}

template <Storage T>
void rms_norm_backward(Input<T, 3> dy, Input<T, 3> x, InputSpan<T> w, const RmsNormOptions& options,
                       std::span<const float> inverse_rms, bool accumulate, View<T, 3> dx,
                       std::span<float> dw) {
  check_arguments<T>(x, w, static_cast<int64_t>(inverse_rms.size()));
  check_same_shape(x, dy, "x and dy");
  check_same_shape(x, dx, "x and dx");
  check_rows_contiguous(dy, "dy");
  check_rows_contiguous(dx, "dx");
  ODYSSEY_CHECK(dw.size() == w.size(), "{} weight gradients for {} weights", dw.size(), w.size());
  const float offset = options.add_one ? 1.0f : 0.0f;
  add_rows_in_fixed_order(x.extent(0) * x.extent(1), dw, [&](int64_t row, float* sums) {
    const auto backward = accumulate ? backward_row<true, T> : backward_row<false, T>;
    backward(row_of(dy, row), row_of(x, row), w.data(), offset,
             inverse_rms[static_cast<size_t>(row)], x.extent(2), row_of(dx, row), sums);
  });
}

template <Storage T>
void rms_norm(Input<T, 2> x, InputSpan<T> w, const RmsNormOptions& options, View<T, 2> y,
              std::span<float> inverse_rms) {
  rms_norm<T>(one_head(x), w, options, one_head(y), inverse_rms);
}

template <Storage T>
void rms_norm_backward(Input<T, 2> dy, Input<T, 2> x, InputSpan<T> w, const RmsNormOptions& options,
                       std::span<const float> inverse_rms, bool accumulate, View<T, 2> dx,
                       std::span<float> dw) {
  rms_norm_backward<T>(one_head(dy), one_head(x), w, options, inverse_rms, accumulate, one_head(dx),
                       dw);
}

#define ODYSSEY_INSTANTIATE(T, Axes)                                                            \
  template void rms_norm<T>(Input<T, Axes>, InputSpan<T>, const RmsNormOptions&, View<T, Axes>, \
                            std::span<float>);                                                  \
  template void rms_norm_backward<T>(Input<T, Axes>, Input<T, Axes>, InputSpan<T>,              \
                                     const RmsNormOptions&, std::span<const float>, bool,       \
                                     View<T, Axes>, std::span<float>);
ODYSSEY_INSTANTIATE(float, 2)
ODYSSEY_INSTANTIATE(float, 3)
ODYSSEY_INSTANTIATE(bf16, 2)
ODYSSEY_INSTANTIATE(bf16, 3)
#undef ODYSSEY_INSTANTIATE

}  // namespace odyssey
