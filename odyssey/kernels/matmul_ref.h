// SPDX-License-Identifier: Apache-2.0
// The products of matmul.h as plain loops with sums in double: the oracle of its tests.
#pragma once
#include "odyssey/kernels/input.h"

namespace odyssey::reference {

// y = x w^T. x [T, I], w [O, I], y [T, O]; Out is T, or float for logits.
template <Storage T, Storage Out>
void linear(Input<T, 2> x, Input<T, 2> w, View<Out, 2> y);

// dx (+)= dy w. dy [T, O], w [O, I], dx [T, I].
template <Storage T>
void linear_backward_input(Input<T, 2> dy, Input<T, 2> w, View<T, 2> dx, bool accumulate);

// dw (+)= dy^T x. dy [T, O], x [T, I], dw [O, I].
template <Storage T>
void linear_backward_weight(Input<T, 2> dy, Input<T, 2> x, View<float, 2> dw, bool accumulate);

}  // namespace odyssey::reference
