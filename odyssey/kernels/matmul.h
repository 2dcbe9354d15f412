// SPDX-License-Identifier: Apache-2.0
// Matrix products of a linear layer y = x w^T, forward and backward: bf16 on AMX tiles of our own
// where those are faster, all else through oneDNN. Sums in fp32.
//
// Rows may stand apart (row stride >= columns), the elements of a row lie side by side. Any extent
// may be 0: an empty sum is 0. Outputs must not overlap inputs. Where this processor has no bf16
// product, the inputs are widened and the fp32 product is rounded once. May be called by many ranks
// (threads) at once. The same shapes on the same number of threads give the same bits. Throws
// RunError when oneDNN fails.
#pragma once
#include "odyssey/kernels/input.h"

namespace odyssey {

// y = x w^T. x [T, I], w [O, I], y [T, O].
template <Storage T>
void linear(Input<T, 2> x, Input<T, 2> w, View<T, 2> y);

// The same with y in fp32, for logits. Name T: linear_to_fp32<bf16>(...).
template <Storage T>
void linear_to_fp32(Input<T, 2> x, Input<T, 2> w, View<float, 2> y);

// dx = dy w, or dx += dy w with `accumulate`. dy [T, O], w [O, I], dx [T, I].
template <Storage T>
void linear_backward_input(Input<T, 2> dy, Input<T, 2> w, View<T, 2> dx, bool accumulate);

// dw = dy^T x, or dw += dy^T x with `accumulate`. dy [T, O], x [T, I], dw [O, I] fp32.
// Name T: linear_backward_weight<bf16>(...).
template <Storage T>
void linear_backward_weight(Input<T, 2> dy, Input<T, 2> x, View<float, 2> dw, bool accumulate);

// Bytes that a rank's first products of such a layer take as scratch and keep, apart from what
// oneDNN takes; a layer of several sizes takes the most of them.
template <Storage T>
int64_t linear_scratch_bytes(int64_t tokens, int64_t inputs, int64_t outputs);

}  // namespace odyssey
