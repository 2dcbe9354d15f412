// SPDX-License-Identifier: Apache-2.0
// The tile instructions of AMX, and the transpose that its operands need. Included only by files
// compiled with AMX flags; everything is in an anonymous namespace.
#pragma once
#include <cstdint>

#include <immintrin.h>

#define ODYSSEY_INLINE inline __attribute__((always_inline))

namespace odyssey::amx {
namespace {

// The compiler's own tile intrinsics tell it nothing about memory, so each wrapper here does:
// stores clobber memory, and fence() stands between vector stores and tile loads of the same bytes.
ODYSSEY_INLINE void fence() {
  asm volatile("" ::: "memory");
}
template <int kTile>
ODYSSEY_INLINE void load_tile(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile));
}
// For operands that stream through: keeps them from displacing what is reused (measured 10-30 %).
template <int kTile>
ODYSSEY_INLINE void stream_tile(const void* from, int64_t stride) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile));
}
template <int kTile>
ODYSSEY_INLINE void store_tile(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
ODYSSEY_INLINE void zero_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
// C += A B; A holds 16 rows of 32 bf16, B 16 pairs of rows of 16 columns.
template <int kC, int kA, int kB>
ODYSSEY_INLINE void multiply() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
}

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
// Tiles are thread state that other libraries also set, so every call configures and releases them.
class Tiles {
 public:
  Tiles() {
    const TileConfig config;
    asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
  }
  ~Tiles() { asm volatile("tilerelease" ::: "memory"); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

// Transposes 16 x 16 words of 32 bits.
ODYSSEY_INLINE void transpose16(__m512i* r) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 2; ++k) {
      r[4 * i + 2 * k] = _mm512_unpacklo_epi64(t[4 * i + k], t[4 * i + 2 + k]);
      r[4 * i + 2 * k + 1] = _mm512_unpackhi_epi64(t[4 * i + k], t[4 * i + 2 + k]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0xdd);
    t[8 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88);
    r[8 + i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0xdd);
    r[4 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0x88);
    r[12 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0xdd);
  }
}

}  // namespace
}  // namespace odyssey::amx
