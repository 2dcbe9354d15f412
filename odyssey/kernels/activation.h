// SPDX-License-Identifier: Apache-2.0
// The gated activations of an MLP: SwiGLU and GeGLU. out = f(gate) * up, in fp32, rounded once. The
// rows run in kernels/row_kernels.h.
#pragma once
#include "odyssey/kernels/input.h"

namespace odyssey {

// silu(x) = x sigmoid(x); gelu in its tanh form, as gemma has it.
enum class GatedKind { kSilu, kGelu };

// out[t, f] = f(gate_up[t, f]) * gate_up[t, F + f]. gate_up [T, 2F], gate first; out [T, F].
template <Storage T>
void gated_activation(GatedKind kind, Input<T, 2> gate_up, View<T, 2> out);

// Gradient of the line above. dout [T, F], gate_up and d_gate_up [T, 2F]; d_gate_up may be gate_up.
template <Storage T>
void gated_activation_backward(GatedKind kind, Input<T, 2> dout, Input<T, 2> gate_up,
                               View<T, 2> d_gate_up);

}  // namespace odyssey
