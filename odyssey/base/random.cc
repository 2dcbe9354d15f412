// SPDX-License-Identifier: Apache-2.0
#include "odyssey/base/random.h"

#include <cmath>
#include <numbers>

namespace odyssey {

std::array<uint32_t, 4> Random::words(uint64_t counter) const {
  uint32_t k0 = static_cast<uint32_t>(seed_), k1 = static_cast<uint32_t>(seed_ >> 32);
  std::array<uint32_t, 4> c{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                            static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return c;
}

uint64_t Random::integer(uint64_t index, uint64_t bound) const {
  const auto w = words(index);
  const uint64_t wide = (uint64_t{w[1]} << 32) | w[0];
  return static_cast<uint64_t>((static_cast<unsigned __int128>(wide) * bound) >> 64);
}

double Random::uniform(uint64_t index) const {
  const auto w = words(index);
  const uint64_t wide = (uint64_t{w[1]} << 32) | w[0];
  return (static_cast<double>(wide >> 11) + 0.5) * 0x1p-53;
}

double Random::normal(uint64_t index) const {
  const auto w = words(index);
  const double u = (w[0] + 0.5) * 0x1p-32;
  const double v = (w[1] + 0.5) * 0x1p-32;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

double Random::truncated_normal(uint64_t index) const {
  // Redraws inside the counter's own sub-stream until the value lies within two deviations.
  const Random redraw(seed_, stream_ ^ 0x8000000000000000U);
  double value = normal(index);
  for (uint64_t again = 0; std::abs(value) > 2.0; ++again) {
    value = redraw.normal(index * 64 + again % 64);
    if (again >= 64) return 0.0;
  }
  // The deviation of a normal cut at two deviations is 0.8796.
  return value / 0.87962566103423978;
}

}  // namespace odyssey
