// SPDX-License-Identifier: Apache-2.0
// Rows are (token, head) pairs; [T, E] is one head a token.
#include "odyssey/kernels/rms_norm.h"

#include <algorithm>

#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/fixed_order.h"
#include "odyssey/kernels/row_kernels.h"

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

// Rows below which another thread costs more than it brings.
int64_t rows_of_grain(int64_t width) {
  return std::max<int64_t>(1, 4096 / std::max<int64_t>(1, width));
}

template <class T>
void check_arguments(Input<T, 3> x, InputSpan<T> w, int64_t inverses) {
  check_rows_contiguous(x, "x");
  ODYSSEY_CHECK(static_cast<int64_t>(w.size()) == x.extent(2), "{} weights for width {}", w.size(),
                x.extent(2));
  ODYSSEY_CHECK(inverses == x.extent(0) * x.extent(1), "{} inverse values for {} rows", inverses,
                x.extent(0) * x.extent(1));
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
  const auto norm = stored_rows<T>(row_kernels()).norm;
  parallel_ranges(x.extent(0) * x.extent(1), rows_of_grain(width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      inverse_rms[static_cast<size_t>(row)] =
          norm(row_of(x, row), w.data(), offset, options.epsilon, width, row_of(y, row));
    }
  });
}

template <Storage T>
void add_rms_norm(Input<T, 2> x, View<T, 2> sum, InputSpan<T> w, const RmsNormOptions& options,
                  View<T, 2> y, std::span<float> inverse_rms) {
  check_arguments<T>(one_head<const T>(x), w, static_cast<int64_t>(inverse_rms.size()));
  check_same_shape(x, sum, "x and sum");
  check_same_shape(x, y, "x and y");
  check_rows_contiguous(sum, "sum");
  check_rows_contiguous(y, "y");
  const int64_t width = x.extent(1);
  const float offset = options.add_one ? 1.0f : 0.0f;
  const StoredRows<T>& rows = stored_rows<T>(row_kernels());
  parallel_ranges(x.extent(0), rows_of_grain(width), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      T* row = sum.data() + t * sum.stride(0);
      rows.add(x.data() + t * x.stride(0), width, row);
      inverse_rms[static_cast<size_t>(t)] =
          rows.norm(row, w.data(), offset, options.epsilon, width, y.data() + t * y.stride(0));
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
  const auto backward = stored_rows<T>(row_kernels()).norm_backward;
  add_rows_in_fixed_order(x.extent(0) * x.extent(1), dw, [&](int64_t row, float* sums) {
    backward(row_of(dy, row), row_of(x, row), w.data(), offset,
             inverse_rms[static_cast<size_t>(row)], x.extent(2), accumulate, row_of(dx, row), sums);
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
template void add_rms_norm<float>(Input<float, 2>, View<float, 2>, InputSpan<float>,
                                  const RmsNormOptions&, View<float, 2>, std::span<float>);
template void add_rms_norm<bf16>(Input<bf16, 2>, View<bf16, 2>, InputSpan<bf16>,
                                 const RmsNormOptions&, View<bf16, 2>, std::span<float>);

}  // namespace odyssey
