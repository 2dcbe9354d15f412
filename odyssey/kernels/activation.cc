// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/activation.h"

#include <algorithm>

#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/exponential.h"
#include "odyssey/kernels/store.h"

namespace odyssey {
namespace {

struct ValueAndSlope {
  float value, slope;
};

struct Silu {
  static ValueAndSlope at(float x) {
    const float s = vector_sigmoid(x);
    return {x * s, s * (1.0f + x * (1.0f - s))};
  }
};

// x (1 + tanh(u)) / 2 = x sigmoid(2u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
struct Gelu {
  static ValueAndSlope at(float x) {
    constexpr float kTwoRoots = 1.59576912f;  // 2 sqrt(2 / pi)
    constexpr float kCubic = 0.044715f;
    // Beyond 10 the sigmoid is 0 or 1 to all digits; the cube of a huge x would overflow.
    const float low = x < -10.0f ? -10.0f : x;
    const float z = low > 10.0f ? 10.0f : low;
    const float s = vector_sigmoid(kTwoRoots * (z + kCubic * z * z * z));
    const float slope_of_2u = kTwoRoots * (1.0f + 3.0f * kCubic * z * z);
    return {x * s, s + x * s * (1.0f - s) * slope_of_2u};
  }
};

template <class Function, class T>
void forward_row(const T* gate_up, T* out, int64_t width) {
  const T* up = gate_up + width;
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    store(out[i], Function::at(to_float(gate_up[i])).value * to_float(up[i]));
  }
}

template <class Function, class T>
void backward_row(const T* dout, const T* gate_up, T* d_gate_up, int64_t width) {
  const T* up = gate_up + width;
  T* d_up = d_gate_up + width;
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    const ValueAndSlope f = Function::at(to_float(gate_up[i]));
    const float d = to_float(dout[i]), u = to_float(up[i]);
    store(d_gate_up[i], d * u * f.slope);
    store(d_up[i], d * f.value);
  }
}

// Calls body(t) for every row, several rows to a thread.
template <class Body>
void for_rows(int64_t rows, int64_t width, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, width));
  parallel_ranges(rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) body(t);
  });
}

}  // namespace

template <Storage T>
void gated_activation(GatedKind kind, Input<T, 2> gate_up, View<T, 2> out) {
  const int64_t width = out.extent(1);
  ODYSSEY_CHECK(gate_up.extent(0) == out.extent(0) && gate_up.extent(1) == 2 * width,
                "gate_up [{}, {}] for out [{}, {}]", gate_up.extent(0), gate_up.extent(1),
                out.extent(0), width);
  check_rows_contiguous(gate_up, "gate_up");
  check_rows_contiguous(out, "out");
  for_rows(out.extent(0), width, [&](int64_t t) {
    const T* from = gate_up.data() + t * gate_up.stride(0);
    T* to = out.data() + t * out.stride(0);
    kind == GatedKind::kSilu ? forward_row<Silu>(from, to, width)
                             : forward_row<Gelu>(from, to, width);
  });
}

template <Storage T>
void gated_activation_backward(GatedKind kind, Input<T, 2> dout, Input<T, 2> gate_up,
                               View<T, 2> d_gate_up) {
  const int64_t width = dout.extent(1);
  ODYSSEY_CHECK(gate_up.extent(0) == dout.extent(0) && gate_up.extent(1) == 2 * width,
                "gate_up [{}, {}] for dout [{}, {}]", gate_up.extent(0), gate_up.extent(1),
                dout.extent(0), width);
  check_same_shape(gate_up, d_gate_up, "gate_up and d_gate_up");
  check_rows_contiguous(dout, "dout");
  check_rows_contiguous(gate_up, "gate_up");
  check_rows_contiguous(d_gate_up, "d_gate_up");
  for_rows(dout.extent(0), width, [&](int64_t t) {
    const T* d = dout.data() + t * dout.stride(0);
    const T* from = gate_up.data() + t * gate_up.stride(0);
    T* to = d_gate_up.data() + t * d_gate_up.stride(0);
    kind == GatedKind::kSilu ? backward_row<Silu>(d, from, to, width)
                             : backward_row<Gelu>(d, from, to, width);
  });
}

template void gated_activation<float>(GatedKind, Input<float, 2>, View<float, 2>);
template void gated_activation<bf16>(GatedKind, Input<bf16, 2>, View<bf16, 2>);
template void gated_activation_backward<float>(GatedKind, Input<float, 2>, Input<float, 2>,
                                               View<float, 2>);
template void gated_activation_backward<bf16>(GatedKind, Input<bf16, 2>, Input<bf16, 2>,
                                              View<bf16, 2>);

}  // namespace odyssey
