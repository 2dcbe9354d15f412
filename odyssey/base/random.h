// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: value i of stream s is a pure function of (seed, s, i), so any rank
// can make any part of any tensor, and the result never depends on the layout.
// Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011 (Philox 4x32-10).
#pragma once
#include <array>
#include <cstdint>

namespace odyssey {

class Random {
 public:
  Random(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}

  // Four uniform 32-bit words for the counter.
  std::array<uint32_t, 4> words(uint64_t counter) const;
  // Uniform integer in [0, bound), without visible bias for bound < 2^32.
  uint64_t integer(uint64_t index, uint64_t bound) const;
  // Uniform in (0, 1).
  double uniform(uint64_t index) const;
  // Normal with mean 0 and deviation 1 (Box-Muller).
  double normal(uint64_t index) const;
  // Normal cut at two deviations and rescaled to deviation 1, as model initialisers use it.
  double truncated_normal(uint64_t index) const;

 private:
  uint64_t seed_;
  uint64_t stream_;
};

}  // namespace odyssey
