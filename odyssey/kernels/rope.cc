// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/fixed_order.h"
#include "odyssey/kernels/row_kernels.h"

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

namespace {

template <class T>
void check_arguments(Input<T, 3> x, std::span<const int32_t> positions,
                     std::span<const float> frequencies) {
  const int64_t tokens = x.extent(0), head_size = x.extent(2);
  ODYSSEY_CHECK(head_size % 2 == 0, "RoPE needs an even head size, got {}", head_size);
  ODYSSEY_CHECK(static_cast<int64_t>(frequencies.size()) == head_size / 2,
                "{} frequencies for head size {}", frequencies.size(), head_size);
  ODYSSEY_CHECK(static_cast<int64_t>(positions.size()) == tokens, "{} positions for {} tokens",
                positions.size(), tokens);
  check_rows_contiguous(x, "x");
}

template <class T>
void check_norm(Input<T, 3> x, const NormRope<T>& by, View<T, 3> y, int64_t inverses) {
  check_arguments<T>(x, by.positions, by.frequencies);
  check_same_shape(x, y, "x and y");
  check_rows_contiguous(y, "y");
  ODYSSEY_CHECK(static_cast<int64_t>(by.w.size()) == x.extent(2), "{} weights for width {}",
                by.w.size(), x.extent(2));
  ODYSSEY_CHECK(inverses == x.extent(0) * x.extent(1), "{} inverse values for {} rows", inverses,
                x.extent(0) * x.extent(1));
}

template <class T>
T* row_of(const View<T, 3>& view, int64_t t, int64_t h) {
  return view.data() + t * view.stride(0) + h * view.stride(1);
}

// Turns the heads of token t, by the opposite angle where `inverse`.
template <class T>
void turn_token(const RowKernels& kernels, const View<T, 3>& x, int64_t t, int32_t position,
                std::span<const float> frequencies, bool inverse) {
  constexpr int64_t kPairs = 64;  // whose sines stay on the stack while all heads are turned
  float cosines[kPairs], sines[kPairs];
  const int64_t half = x.extent(2) / 2;
  const float signed_position = static_cast<float>(position) * (inverse ? -1.0f : 1.0f);
  for (int64_t first = 0; first < half; first += kPairs) {
    const int64_t pairs = std::min(kPairs, half - first);
    kernels.angles(signed_position, frequencies.data() + first, pairs, cosines, sines);
    for (int64_t h = 0; h < x.extent(1); ++h) {
      T* low = row_of(x, t, h) + first;
      stored_rows<T>(kernels).turn(low, low + half, cosines, sines, pairs);
    }
  }
}

constexpr int64_t kGrain = 8;  // tokens below which another thread costs more than it brings

}  // namespace

template <Storage T>
void rope(View<T, 3> x, std::span<const int32_t> positions, std::span<const float> frequencies,
          bool inverse) {
  check_arguments<T>(x, positions, frequencies);
  const RowKernels& kernels = row_kernels();
  parallel_ranges(x.extent(0), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      turn_token(kernels, x, t, positions[static_cast<size_t>(t)], frequencies, inverse);
    }
  });
}

template <Storage T>
void rms_norm_rope(Input<T, 3> x, const NormRope<T>& by, View<T, 3> y,
                   std::span<float> inverse_rms) {
  check_norm<T>(x, by, y, static_cast<int64_t>(inverse_rms.size()));
  const int64_t heads = x.extent(1), head_size = x.extent(2);
  const float offset = by.options.add_one ? 1.0f : 0.0f;
  const RowKernels& kernels = row_kernels();
  parallel_ranges(x.extent(0), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        inverse_rms[static_cast<size_t>(t * heads + h)] = stored_rows<T>(kernels).norm(
            row_of(x, t, h), by.w.data(), offset, by.options.epsilon, head_size, row_of(y, t, h));
      }
      turn_token(kernels, y, t, by.positions[static_cast<size_t>(t)], by.frequencies, false);
    }
  });
}

template <Storage T>
void rms_norm_rope_backward(View<T, 3> dy, Input<T, 3> x, const NormRope<T>& by,
                            std::span<const float> inverse_rms, std::span<float> dw) {
  check_norm<T>(x, by, dy, static_cast<int64_t>(inverse_rms.size()));
  ODYSSEY_CHECK(dw.size() == by.w.size(), "{} weight gradients for {} weights", dw.size(),
                by.w.size());
  const int64_t heads = x.extent(1), head_size = x.extent(2);
  const float offset = by.options.add_one ? 1.0f : 0.0f;
  const RowKernels& kernels = row_kernels();
  add_rows_in_fixed_order(x.extent(0), dw, [&](int64_t t, float* sums) {
    turn_token(kernels, dy, t, by.positions[static_cast<size_t>(t)], by.frequencies, true);
    for (int64_t h = 0; h < heads; ++h) {
      T* row = row_of(dy, t, h);
      stored_rows<T>(kernels).norm_backward(row, row_of(x, t, h), by.w.data(), offset,
                                            inverse_rms[static_cast<size_t>(t * heads + h)],
                                            head_size, /*accumulate=*/false, row, sums);
    }
  });
}

#define ODYSSEY_INSTANTIATE(T)                                                                   \
  template void rope<T>(View<T, 3>, std::span<const int32_t>, std::span<const float>, bool);     \
  template void rms_norm_rope<T>(Input<T, 3>, const NormRope<T>&, View<T, 3>, std::span<float>); \
  template void rms_norm_rope_backward<T>(View<T, 3>, Input<T, 3>, const NormRope<T>&,           \
                                          std::span<const float>, std::span<float>);
ODYSSEY_INSTANTIATE(float)
ODYSSEY_INSTANTIATE(bf16)
#undef ODYSSEY_INSTANTIATE

}  // namespace odyssey
