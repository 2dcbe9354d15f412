// SPDX-License-Identifier: Apache-2.0
// bfloat16 as storage: the upper half of an fp32. All arithmetic is done in fp32.
#pragma once
#include <bit>
#include <cstdint>

namespace odyssey {

struct bf16 {
  uint16_t bits = 0;

  bf16() = default;
  // Rounds to nearest, ties to even; NaN stays NaN.
  explicit bf16(float value) {
    uint32_t word = std::bit_cast<uint32_t>(value);
    if ((word & 0x7fffffffU) > 0x7f800000U) {
      bits = static_cast<uint16_t>((word >> 16) | 0x40U);
    } else {
      bits = static_cast<uint16_t>((word + 0x7fffU + ((word >> 16) & 1U)) >> 16);
    }
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};
static_assert(sizeof(bf16) == 2);

inline float to_float(float value) {
  return value;
}
inline float to_float(bf16 value) {
  return static_cast<float>(value);
}

}  // namespace odyssey
