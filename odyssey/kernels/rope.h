// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding as Hugging Face has it: pair (i, i + D/2) of a head is turned by the
// angle position * frequency[i]. The angle is the fp32 product of the integer position and the fp32
// frequency. The rows run in kernels/row_kernels.h.
#pragma once
#include <vector>

#include "odyssey/kernels/rms_norm.h"

namespace odyssey {

// The "llama3" stretch of the frequencies, in three bands by wavelength 2 pi / frequency: shorter
// than original_length / high_frequency_factor is kept, longer than original_length /
// low_frequency_factor is divided by factor, and between the two is blended. Factor 1: none.
struct RopeBands {
  double factor = 1, low_frequency_factor = 1, high_frequency_factor = 4;
  int64_t original_length = 8192;
};

// theta^(-2 i / D) for i in [0, D/2), stretched, in the fp32 steps of the usual reference. D even.
std::vector<float> rope_frequencies(int64_t head_size, double theta, const RopeBands& bands = {});

// Turns x [T, H, D] in place; positions [T] are global, frequencies [D/2]. `inverse` turns back,
// which is also the backward pass.
template <Storage T>
void rope(View<T, 3> x, std::span<const int32_t> positions, std::span<const float> frequencies,
          bool inverse);

// The norm of every head and then its turn (models that norm queries and keys), in one pass over
// memory.
template <Storage T>
struct NormRope {
  InputSpan<T> w;  // [D]
  RmsNormOptions options;
  std::span<const int32_t> positions;  // [T]
  std::span<const float> frequencies;  // [D/2]
};

// With the bits of rms_norm and then rope: x, y [T, H, D], y may be x; inverse_rms [T * H] is kept
// for the backward pass.
template <Storage T>
void rms_norm_rope(Input<T, 3> x, const NormRope<T>& by, View<T, 3> y,
                   std::span<float> inverse_rms);

// dy, the gradient of y, becomes the gradient of x; dw [D] += in fp32, in an order that the number
// of tokens alone fixes.
template <Storage T>
void rms_norm_rope_backward(View<T, 3> dy, Input<T, 3> x, const NormRope<T>& by,
                            std::span<const float> inverse_rms, std::span<float> dw);

}  // namespace odyssey
