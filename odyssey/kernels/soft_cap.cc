// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/soft_cap.h"

#include <cmath>

#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/exponential.h"

namespace odyssey {

void soft_cap(float cap, View<float, 2> logits) {
  ODYSSEY_CHECK(cap > 0, "cap {}", cap);
  check_rows_contiguous(logits, "logits");
  const int64_t size = logits.extent(1);
  const float factor = -2 / cap;
  parallel_for(logits.extent(0), [&](int64_t c) {
    float* row = logits.data() + c * logits.stride(0);
    // tanh |x| = (1 - e^(-2 |x|)) / (1 + e^(-2 |x|)): no overflow for any x.
    for (int64_t v = 0; v < size; ++v) {
      const float e = vector_exp(factor * std::fabs(row[v]));
      row[v] = std::copysign(cap * (1 - e) / (1 + e), row[v]);
    }
  });
}

template <Storage T>
void soft_cap_backward(float cap, View<const float, 2> capped, View<T, 2> d) {
  ODYSSEY_CHECK(cap > 0, "cap {}", cap);
  check_same_shape(capped, d, "capped logits and gradient");
  check_rows_contiguous(capped, "capped");
  check_rows_contiguous(d, "d");
  const int64_t size = d.extent(1);
  const float inverse = 1 / cap;
  parallel_for(d.extent(0), [&](int64_t c) {
    const float* y = capped.data() + c * capped.stride(0);
    T* gradient = d.data() + c * d.stride(0);
    for (int64_t v = 0; v < size; ++v) {
      const float t = y[v] * inverse;
      gradient[v] = T(to_float(gradient[v]) * (1 - t * t));
    }
  });
}

template void soft_cap_backward<float>(float, View<const float, 2>, View<float, 2>);
template void soft_cap_backward<bf16>(float, View<const float, 2>, View<bf16, 2>);

}  // namespace odyssey
