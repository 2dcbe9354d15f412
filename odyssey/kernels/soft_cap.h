// SPDX-License-Identifier: Apache-2.0
// The soft cap of output logits, y = cap * tanh(x / cap) (gemma2), in place. Attention scores have
// theirs inside kernels/block_attention.h.
#pragma once
#include "odyssey/kernels/input.h"

namespace odyssey {

// logits [C, V] = cap * tanh(logits / cap), to 1e-6 * cap. cap > 0.
void soft_cap(float cap, View<float, 2> logits);

// d [C, V] *= 1 - (capped / cap)^2: from the gradient of the capped logits to that of the logits.
template <Storage T>
void soft_cap_backward(float cap, View<const float, 2> capped, View<T, 2> d);

}  // namespace odyssey
