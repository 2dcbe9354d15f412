// SPDX-License-Identifier: Apache-2.0
// Kernels without structure: sums, copies, conversions and reductions over elements. Inputs and
// outputs do not overlap, except that x may be y.
#pragma once
#include "odyssey/kernels/input.h"

namespace odyssey {

// y += x
template <Storage T>
void add(InputSpan<T> x, std::span<T> y);

// total += x, in fp32: gradients of type T into an fp32 sum. Name T: add_converted<bf16>(...).
template <Storage T>
void add_converted(InputSpan<T> x, std::span<float> total);

// x *= factor
template <Storage T>
void scale(float factor, std::span<T> x);

template <Storage T>
void fill_zero(std::span<T> x);

// to = from, rounded to nearest even where `To` is narrower. Name From: convert<float>(from, to).
template <Storage From, Storage To>
void convert(InputSpan<From> from, std::span<To> to);

// to = from for equal extents and any strides; fast where the last axes are contiguous in both.
template <Storage T>
void copy(Input<T, 3> from, View<T, 3> to);
template <Storage T>
void copy(Input<T, 4> from, View<T, 4> to);

// The strided forms of convert and add, for equal extents; the last axes are contiguous.
template <Storage From, Storage To>
void convert(Input<From, 4> from, View<To, 4> to);
template <Storage T>
void add(Input<T, 4> x, View<T, 4> y);

// y[t, o] += bias[o]. bias [O], y [T, O].
template <Storage T>
void add_bias(InputSpan<T> bias, View<T, 2> y);

// d_bias[o] += sum over t of dy[t, o], in fp32 and in fixed order. dy [T, O], d_bias [O].
// Name T: bias_backward<bf16>(...).
template <Storage T>
void bias_backward(Input<T, 2> dy, std::span<float> d_bias);

// Sum of x^2 in double, in an order fixed by the length: the same bits at any number of threads.
// Name T: sum_of_squares<bf16>(...).
template <Storage T>
double sum_of_squares(InputSpan<T> x);

}  // namespace odyssey
