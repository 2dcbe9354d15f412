// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding as Hugging Face has it: pair (i, i + D/2) of a head is turned by the
// angle position * frequency[i]. The angle is the fp32 product of the integer position and the fp32
// frequency. The kernel is the plain loop itself; its test holds the formula in double.
#pragma once
#include <vector>

#include "odyssey/kernels/input.h"

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

}  // namespace odyssey
