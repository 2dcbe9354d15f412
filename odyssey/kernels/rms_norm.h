// SPDX-License-Identifier: Apache-2.0
// Root-mean-square normalisation, y = x / sqrt(mean(x^2) + epsilon) * w, over the last axis.
// Arithmetic in fp32. The rows run in kernels/row_kernels.h.
#pragma once
#include "odyssey/kernels/input.h"

namespace odyssey {

struct RmsNormOptions {
  float epsilon = 1e-5f;
  bool add_one = false;  // gemma: the weight is 1 + w
};

// x, y [T, E]; w [E]; inverse_rms [T] is kept for the backward pass. y may be x.
template <Storage T>
void rms_norm(Input<T, 2> x, InputSpan<T> w, const RmsNormOptions& options, View<T, 2> y,
              std::span<float> inverse_rms);

// The norm of every head: x, y [T, H, D]; w [D]; inverse_rms [T * H]. y may be x.
template <Storage T>
void rms_norm(Input<T, 3> x, InputSpan<T> w, const RmsNormOptions& options, View<T, 3> y,
              std::span<float> inverse_rms);

// In one pass over memory, with the bits of add(x, sum) and then rms_norm(sum): sum += x, y =
// rms_norm(sum). x, sum, y [T, E], three different tensors.
template <Storage T>
void add_rms_norm(Input<T, 2> x, View<T, 2> sum, InputSpan<T> w, const RmsNormOptions& options,
                  View<T, 2> y, std::span<float> inverse_rms);

// dx = gradient, or dx += gradient with `accumulate`; dw [E] += in fp32, in an order that the
// number of rows alone fixes. x is the input of the forward call. dx may be dy.
template <Storage T>
void rms_norm_backward(Input<T, 2> dy, Input<T, 2> x, InputSpan<T> w, const RmsNormOptions& options,
                       std::span<const float> inverse_rms, bool accumulate, View<T, 2> dx,
                       std::span<float> dw);
template <Storage T>
void rms_norm_backward(Input<T, 3> dy, Input<T, 3> x, InputSpan<T> w, const RmsNormOptions& options,
                       std::span<const float> inverse_rms, bool accumulate, View<T, 3> dx,
                       std::span<float> dw);

}  // namespace odyssey
