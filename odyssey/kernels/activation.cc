// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/activation.h"

#include <algorithm>

#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/row_kernels.h"

namespace odyssey {
namespace {

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
  const StoredRows<T>& rows = stored_rows<T>(row_kernels());
  const auto forward = kind == GatedKind::kSilu ? rows.silu : rows.gelu;
  for_rows(out.extent(0), width, [&](int64_t t) {
    const T* from = gate_up.data() + t * gate_up.stride(0);
    forward(from, from + width, width, out.data() + t * out.stride(0));
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
  const StoredRows<T>& rows = stored_rows<T>(row_kernels());
  const auto backward = kind == GatedKind::kSilu ? rows.silu_backward : rows.gelu_backward;
  for_rows(dout.extent(0), width, [&](int64_t t) {
    const T* d = dout.data() + t * dout.stride(0);
    const T* from = gate_up.data() + t * gate_up.stride(0);
    T* to = d_gate_up.data() + t * d_gate_up.stride(0);
    backward(d, from, from + width, width, to, to + width);
  });
}

template void gated_activation<float>(GatedKind, Input<float, 2>, View<float, 2>);
template void gated_activation<bf16>(GatedKind, Input<bf16, 2>, View<bf16, 2>);
template void gated_activation_backward<float>(GatedKind, Input<float, 2>, Input<float, 2>,
                                               View<float, 2>);
template void gated_activation_backward<bf16>(GatedKind, Input<bf16, 2>, Input<bf16, 2>,
                                              View<bf16, 2>);

}  // namespace odyssey
