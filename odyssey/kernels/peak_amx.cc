// SPDX-License-Identifier: Apache-2.0
// Peak of bf16 tile products: tiles 0 to 3 are sums, 4 and 5 rows, 6 and 7 columns, as in a kernel
// with 2 x 2 tiles, but nothing is loaded within the loop.
#include <cstdint>

#include "odyssey/kernels/peak_loop.h"

namespace odyssey {
namespace {

// What ldtilecfg reads.
struct alignas(64) TileConfiguration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfiguration) == 64);

constexpr long kRowBytes = 64;

}  // namespace

void amx_peak_loop(const void* random, void* sums) {
  const TileConfiguration configuration;
  const char* in = static_cast<const char*>(random);
  char* out = static_cast<char*>(sums);
  asm volatile("ldtilecfg %0" ::"m"(configuration) : "memory");
  asm volatile(
      "tileloadd (%0,%4,1), %%tmm4\n\t"
      "tileloadd (%1,%4,1), %%tmm5\n\t"
      "tileloadd (%2,%4,1), %%tmm6\n\t"
      "tileloadd (%3,%4,1), %%tmm7\n\t"
      "tilezero %%tmm0\n\t"
      "tilezero %%tmm1\n\t"
      "tilezero %%tmm2\n\t"
      "tilezero %%tmm3" ::"r"(in),
      "r"(in + 1024), "r"(in + 2048), "r"(in + 3072), "r"(kRowBytes)
      : "memory");
  for (int round = 0; round < kPeakRounds; ++round) {
    asm volatile(
        "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\t"
        "tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
        "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\t"
        "tdpbf16ps %%tmm7, %%tmm5, %%tmm3" ::);
  }
  asm volatile(
      "tilestored %%tmm0, (%0,%4,1)\n\t"
      "tilestored %%tmm1, (%1,%4,1)\n\t"
      "tilestored %%tmm2, (%2,%4,1)\n\t"
      "tilestored %%tmm3, (%3,%4,1)" ::"r"(out),
      "r"(out + 1024), "r"(out + 2048), "r"(out + 3072), "r"(kRowBytes)
      : "memory");
  asm volatile("tilerelease" ::: "memory");
}

}  // namespace odyssey
