// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/elementwise.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/fixed_order.h"
#include "odyssey/kernels/row_kernels.h"

namespace odyssey {
namespace {

// Elements below which another thread costs more than it brings.
constexpr int64_t kGrain = 16384;

template <class A, class B>
int64_t common_size(std::span<A> a, std::span<B> b) {
  ODYSSEY_CHECK(a.size() == b.size(), "{} and {} elements", a.size(), b.size());
  return static_cast<int64_t>(a.size());
}

template <class From, class To>
void convert_row(const RowKernels& kernels, const From* in, int64_t size, To* out) {
  if constexpr (std::is_same_v<From, To>) {
    // Also where both are one place.
    if (in != out) std::memcpy(out, in, static_cast<size_t>(size) * sizeof(To));
  } else if constexpr (std::is_same_v<To, bf16>) {
    kernels.narrow(in, size, out);
  } else {
    kernels.widen(in, size, out);
  }
}

// Copies [rows, columns]; strides in elements.
template <class T>
void copy_plane(const T* from, T* to, const int64_t* extents, const int64_t* from_strides,
                const int64_t* to_strides) {
  const int64_t rows = extents[0], columns = extents[1];
  const bool contiguous = columns == 1 || (from_strides[1] == 1 && to_strides[1] == 1);
  if (contiguous && (rows == 1 || (from_strides[0] == columns && to_strides[0] == columns))) {
    std::memcpy(to, from, static_cast<size_t>(rows * columns) * sizeof(T));
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    const T* source = from + r * from_strides[0];
    T* target = to + r * to_strides[0];
    if (contiguous) {
      std::memcpy(target, source, static_cast<size_t>(columns) * sizeof(T));
    } else {
      for (int64_t c = 0; c < columns; ++c) target[c * to_strides[1]] = source[c * from_strides[1]];
    }
  }
}

}  // namespace

template <Storage T>
void add(InputSpan<T> x, std::span<T> y) {
  const int64_t size = common_size(x, y);
  const T* in = x.data();
  T* out = y.data();
  const auto kernel = stored_rows<T>(row_kernels()).add;
  parallel_ranges(size, kGrain, [&](int64_t begin, int64_t end) {
    kernel(in + begin, end - begin, out + begin);
  });
}

template <Storage T>
void add_converted(InputSpan<T> x, std::span<float> total) {
  const int64_t size = common_size(x, total);
  const T* in = x.data();
  float* out = total.data();
  const auto kernel = stored_rows<T>(row_kernels()).add_scaled;
  parallel_ranges(size, kGrain, [&](int64_t begin, int64_t end) {
    kernel(1.0f, in + begin, end - begin, out + begin);  // times 1 changes no bit
  });
}

template <Storage T>
void scale(float factor, std::span<T> x) {
  T* data = x.data();
  const auto kernel = stored_rows<T>(row_kernels()).scale;
  parallel_ranges(static_cast<int64_t>(x.size()), kGrain, [&](int64_t begin, int64_t end) {
    kernel(factor, data + begin, end - begin, data + begin);
  });
}

template <Storage T>
void fill_zero(std::span<T> x) {
  T* data = x.data();
  parallel_ranges(static_cast<int64_t>(x.size()), kGrain, [&](int64_t begin, int64_t end) {
    std::fill(data + begin, data + end, T(0.0f));
  });
}

template <Storage From, Storage To>
void convert(InputSpan<From> from, std::span<To> to) {
  const int64_t size = common_size(from, to);
  const From* in = from.data();
  To* out = to.data();
  const RowKernels& kernels = row_kernels();
  parallel_ranges(size, kGrain, [&](int64_t begin, int64_t end) {
    convert_row(kernels, in + begin, end - begin, out + begin);
  });
}

template <Storage T>
void copy(Input<T, 4> from, View<T, 4> to) {
  check_same_shape(from, to, "copy");
  if (to.size() == 0) return;
  const int64_t middle = to.extent(1), plane = to.extent(2) * to.extent(3);
  const int64_t grain = std::max<int64_t>(1, kGrain / plane);
  parallel_ranges(to.extent(0) * middle, grain, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t i = item / middle, j = item % middle;
      copy_plane(from.data() + i * from.stride(0) + j * from.stride(1),
                 to.data() + i * to.stride(0) + j * to.stride(1), &to.extents()[2],
                 &from.strides()[2], &to.strides()[2]);
    }
  });
}

template <Storage T>
void copy(Input<T, 3> from, View<T, 3> to) {
  const auto four_axes = [](auto view) {
    using Element = std::remove_pointer_t<decltype(view.data())>;
    return View<Element, 4>(view.data(), {1, view.extent(0), view.extent(1), view.extent(2)},
                            {0, view.stride(0), view.stride(1), view.stride(2)});
  };
  copy<T>(four_axes(from), four_axes(to));
}

namespace {

// Calls row(source, target, length) for every row of two tensors of equal extents.
template <class A, class B, class Row>
void for_each_row(const View<A, 4>& from, const View<B, 4>& to, const Row& row) {
  check_same_shape(from, to, "tensors");
  check_rows_contiguous(from, "from");
  check_rows_contiguous(to, "to");
  if (to.size() == 0) return;
  const int64_t middle = to.extent(1), plane = to.extent(2) * to.extent(3);
  const int64_t grain = std::max<int64_t>(1, kGrain / plane);
  parallel_ranges(to.extent(0) * middle, grain, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t i = item / middle, j = item % middle;
      for (int64_t k = 0; k < to.extent(2); ++k) {
        row(from.data() + i * from.stride(0) + j * from.stride(1) + k * from.stride(2),
            to.data() + i * to.stride(0) + j * to.stride(1) + k * to.stride(2), to.extent(3));
      }
    }
  });
}

}  // namespace

template <Storage From, Storage To>
void convert(Input<From, 4> from, View<To, 4> to) {
  const RowKernels& kernels = row_kernels();
  for_each_row(from, to, [&](const From* in, To* out, int64_t length) {
    convert_row(kernels, in, length, out);
  });
}

template <Storage T>
void add(Input<T, 4> x, View<T, 4> y) {
  const auto kernel = stored_rows<T>(row_kernels()).add;
  for_each_row(x, y, [&](const T* in, T* out, int64_t length) { kernel(in, length, out); });
}

template <Storage T>
void add_bias(InputSpan<T> bias, View<T, 2> y) {
  const int64_t columns = y.extent(1);
  ODYSSEY_CHECK(static_cast<int64_t>(bias.size()) == columns, "bias of {} for {} columns",
                bias.size(), columns);
  check_rows_contiguous(y, "y");
  if (y.size() == 0) return;
  const auto kernel = stored_rows<T>(row_kernels()).add;
  parallel_ranges(y.extent(0), std::max<int64_t>(1, kGrain / columns),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t t = begin; t < end; ++t) {
                      kernel(bias.data(), columns, y.data() + t * y.stride(0));
                    }
                  });
}

template <Storage T>
void bias_backward(Input<T, 2> dy, std::span<float> d_bias) {
  const int64_t columns = dy.extent(1);
  ODYSSEY_CHECK(static_cast<int64_t>(d_bias.size()) == columns, "bias of {} for {} columns",
                d_bias.size(), columns);
  check_rows_contiguous(dy, "dy");
  const auto kernel = stored_rows<T>(row_kernels()).add_scaled;
  add_rows_in_fixed_order(dy.extent(0), d_bias, [&](int64_t t, float* sums) {
    kernel(1.0f, dy.data() + t * dy.stride(0), columns, sums);
  });
}

template <Storage T>
double sum_of_squares(InputSpan<T> x) {
  const FixedPieces pieces(static_cast<int64_t>(x.size()), kGrain);
  const T* data = x.data();
  const auto kernel = stored_rows<T>(row_kernels()).squares;
  std::array<double, FixedPieces::kMost> sums{};
  parallel_for(pieces.count(), [&](int64_t piece) {
    const int64_t begin = pieces.begin(piece);
    sums[static_cast<size_t>(piece)] = kernel(data + begin, pieces.end(piece) - begin);
  });
  double total = 0;
  for (double sum : sums) total += sum;
  return total;
}

#define ODYSSEY_INSTANTIATE(T)                                     \
  template void add<T>(InputSpan<T>, std::span<T>);                \
  template void add_converted<T>(InputSpan<T>, std::span<float>);  \
  template void scale<T>(float, std::span<T>);                     \
  template void fill_zero<T>(std::span<T>);                        \
  template void convert<T, float>(InputSpan<T>, std::span<float>); \
  template void convert<T, bf16>(InputSpan<T>, std::span<bf16>);   \
  template void convert<T, float>(Input<T, 4>, View<float, 4>);    \
  template void convert<T, bf16>(Input<T, 4>, View<bf16, 4>);      \
  template void add<T>(Input<T, 4>, View<T, 4>);                   \
  template void copy<T>(Input<T, 3>, View<T, 3>);                  \
  template void copy<T>(Input<T, 4>, View<T, 4>);                  \
  template void add_bias<T>(InputSpan<T>, View<T, 2>);             \
  template void bias_backward<T>(Input<T, 2>, std::span<float>);   \
  template double sum_of_squares<T>(InputSpan<T>);
ODYSSEY_INSTANTIATE(float)
ODYSSEY_INSTANTIATE(bf16)
#undef ODYSSEY_INSTANTIATE

}  // namespace odyssey
