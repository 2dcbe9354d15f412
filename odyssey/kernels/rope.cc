// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/store.h"

namespace odyssey {
namespace {

float stretch(float frequency, const RopeBands& bands) {
  const float length = static_cast<float>(bands.original_length);
  const float factor = static_cast<float>(bands.factor);
  const float low = static_cast<float>(bands.low_frequency_factor);
  const float high = static_cast<float>(bands.high_frequency_factor);
  const float wavelength = 2 * std::numbers::pi_v<float> / frequency;
  if (wavelength > length / low) return frequency / factor;
  if (wavelength < length / high) return frequency;
  const float smooth = (length / wavelength - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

// (low, high) -> (low cos - high sin, high cos + low sin), pair by pair.
template <class T>
void turn(T* low, T* high, const float* cosines, const float* sines, int64_t pairs) {
#pragma omp simd
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = to_float(low[i]), b = to_float(high[i]);
    store(low[i], a * cosines[i] - b * sines[i]);
    store(high[i], b * cosines[i] + a * sines[i]);
  }
}

}  // namespace

std::vector<float> rope_frequencies(int64_t head_size, double theta, const RopeBands& bands) {
  ODYSSEY_CHECK(head_size >= 0 && head_size % 2 == 0, "RoPE needs an even head size, got {}",
                head_size);
  std::vector<float> frequencies(static_cast<size_t>(head_size / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_size);
    const float power = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    frequencies[i] = 1.0f / power;
    if (bands.factor != 1) frequencies[i] = stretch(frequencies[i], bands);
  }
  return frequencies;
}

template <Storage T>
void rope(View<T, 3> x, std::span<const int32_t> positions, std::span<const float> frequencies,
          bool inverse) {
  const int64_t tokens = x.extent(0), heads = x.extent(1), head_size = x.extent(2);
  const int64_t half = head_size / 2;
  ODYSSEY_CHECK(head_size % 2 == 0, "RoPE needs an even head size, got {}", head_size);
  ODYSSEY_CHECK(static_cast<int64_t>(frequencies.size()) == half, "{} frequencies for head size {}",
                frequencies.size(), head_size);
  ODYSSEY_CHECK(static_cast<int64_t>(positions.size()) == tokens, "{} positions for {} tokens",
                positions.size(), tokens);
  check_rows_contiguous(x, "x");
  constexpr int64_t kPairs = 64;  // whose sines stay on the stack while all heads are turned
  parallel_ranges(tokens, 8, [&](int64_t begin, int64_t end) {
    float cosines[kPairs], sines[kPairs];
    for (int64_t t = begin; t < end; ++t) {
      const float position = static_cast<float>(positions[static_cast<size_t>(t)]);
      for (int64_t first = 0; first < half; first += kPairs) {
        const int64_t pairs = std::min(kPairs, half - first);
        for (int64_t i = 0; i < pairs; ++i) {
          const float angle = position * frequencies[static_cast<size_t>(first + i)];
          cosines[i] = std::cos(angle);
          sines[i] = inverse ? -std::sin(angle) : std::sin(angle);
        }
        for (int64_t h = 0; h < heads; ++h) {
          T* low = x.data() + t * x.stride(0) + h * x.stride(1) + first;
          turn(low, low + half, cosines, sines, pairs);
        }
      }
    }
  });
}

template void rope<float>(View<float, 3>, std::span<const int32_t>, std::span<const float>, bool);
template void rope<bf16>(View<bf16, 3>, std::span<const int32_t>, std::span<const float>, bool);

}  // namespace odyssey
