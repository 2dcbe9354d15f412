// SPDX-License-Identifier: Apache-2.0
// store(to, value): to = T(value), written so that GCC turns loops over it into vector code. With
// the plain assignment it keeps a bf16 object in memory and such loops stay scalar, 3 to 4 times
// slower.
#pragma once
#include <bit>
#include <cstdint>

#include "odyssey/base/bf16.h"

namespace odyssey {

inline void store(float& to, float value) {
  to = value;
}

// The rounding of the bf16 constructor; a test holds the two equal.
inline void store(bf16& to, float value) {
  const uint32_t word = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (word + 0x7fffU + ((word >> 16) & 1U)) >> 16;
  const uint32_t quiet = (word >> 16) | 0x40U;
  to.bits = static_cast<uint16_t>((word & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
}

}  // namespace odyssey
