// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/matmul_ref.h"

namespace odyssey::reference {

template <Storage T, Storage Out>
void linear(Input<T, 2> x, Input<T, 2> w, View<Out, 2> y) {
  for (int64_t t = 0; t < y.extent(0); ++t) {
    for (int64_t o = 0; o < y.extent(1); ++o) {
      double sum = 0;
      for (int64_t i = 0; i < x.extent(1); ++i) {
        sum += static_cast<double>(to_float(x(t, i))) * to_float(w(o, i));
      }
      y(t, o) = Out(static_cast<float>(sum));
    }
  }
}

template <Storage T>
void linear_backward_input(Input<T, 2> dy, Input<T, 2> w, View<T, 2> dx, bool accumulate) {
  for (int64_t t = 0; t < dx.extent(0); ++t) {
    for (int64_t i = 0; i < dx.extent(1); ++i) {
      double sum = accumulate ? to_float(dx(t, i)) : 0.0;
      for (int64_t o = 0; o < w.extent(0); ++o) {
        sum += static_cast<double>(to_float(dy(t, o))) * to_float(w(o, i));
      }
      dx(t, i) = T(static_cast<float>(sum));
    }
  }
}

template <Storage T>
void linear_backward_weight(Input<T, 2> dy, Input<T, 2> x, View<float, 2> dw, bool accumulate) {
  for (int64_t o = 0; o < dw.extent(0); ++o) {
    for (int64_t i = 0; i < dw.extent(1); ++i) {
      double sum = accumulate ? dw(o, i) : 0.0f;
      for (int64_t t = 0; t < x.extent(0); ++t) {
        sum += static_cast<double>(to_float(dy(t, o))) * to_float(x(t, i));
      }
      dw(o, i) = static_cast<float>(sum);
    }
  }
}

template void linear<float, float>(Input<float, 2>, Input<float, 2>, View<float, 2>);
template void linear<bf16, bf16>(Input<bf16, 2>, Input<bf16, 2>, View<bf16, 2>);
template void linear<bf16, float>(Input<bf16, 2>, Input<bf16, 2>, View<float, 2>);
template void linear_backward_input<float>(Input<float, 2>, Input<float, 2>, View<float, 2>, bool);
template void linear_backward_input<bf16>(Input<bf16, 2>, Input<bf16, 2>, View<bf16, 2>, bool);
template void linear_backward_weight<float>(Input<float, 2>, Input<float, 2>, View<float, 2>, bool);
template void linear_backward_weight<bf16>(Input<bf16, 2>, Input<bf16, 2>, View<float, 2>, bool);

}  // namespace odyssey::reference
