// SPDX-License-Identifier: Apache-2.0
// Products of bf16 units on AMX tiles. While the tiles of one micro-tile are multiplied, the vector
// unit finishes the one before: adds it to the sums in L2, or rounds and stores it.
#include <immintrin.h>

#include "odyssey/kernels/amx_tiles.h"
#include "odyssey/kernels/matmul_tile.h"

namespace odyssey {
namespace {

using amx::fence, amx::load_tile, amx::store_tile, amx::stream_tile, amx::zero_tile;
using amx::Tiles, amx::transpose16;

constexpr int64_t kTileStride = 64;  // bytes from row to row: packed tiles have no gaps

// ---- packing ----

// Row i of a unit; what lies outside of the source is zero and is not touched.
template <bool kWhole>
ODYSSEY_INLINE __m512i load_row(const bf16* from, int64_t stride, int64_t i, int64_t rows,
                                __mmask32 columns) {
  if (kWhole) return _mm512_loadu_si512(from + i * stride);
  return i < rows ? _mm512_maskz_loadu_epi16(columns, from + i * stride) : _mm512_setzero_si512();
}

ODYSSEY_INLINE void store_row(bf16* to, __m512i row) {
  _mm512_store_si512(to, row);
}

// Index vectors that interleave elements 0..15 (16..31) of two rows.
ODYSSEY_INLINE __m512i interleave_index(bool upper) {
  alignas(64) uint16_t index[32];
  for (int i = 0; i < 16; ++i) {
    index[2 * i] = static_cast<uint16_t>(i + (upper ? 16 : 0));
    index[2 * i + 1] = static_cast<uint16_t>(i + (upper ? 48 : 32));
  }
  return _mm512_load_si512(index);
}

struct CopyUnit {  // A from rows of A
  template <bool kWhole>
  static ODYSSEY_INLINE void pack(const bf16* from, int64_t stride, int64_t rows, __mmask32 columns,
                                  bf16* to) {
    for (int64_t i = 0; i < 32; ++i) {
      store_row(to + i * 32, load_row<kWhole>(from, stride, i, rows, columns));
    }
  }
};

struct TransposeUnit {  // B from rows of B^T
  template <bool kWhole>
  static ODYSSEY_INLINE void pack(const bf16* from, int64_t stride, int64_t rows, __mmask32 columns,
                                  bf16* to) {
    for (int half = 0; half < 2; ++half) {
      __m512i r[16];
      for (int i = 0; i < 16; ++i) {
        r[i] = load_row<kWhole>(from, stride, half * 16 + i, rows, columns);
      }
      transpose16(r);
      for (int i = 0; i < 16; ++i) store_row(to + half * 512 + i * 32, r[i]);
    }
  }
};

struct InterleaveUnit {  // B from rows of B
  template <bool kWhole>
  static ODYSSEY_INLINE void pack(const bf16* from, int64_t stride, int64_t rows, __mmask32 columns,
                                  bf16* to) {
    const __m512i lower = interleave_index(false), upper = interleave_index(true);
    for (int64_t p = 0; p < 16; ++p) {
      const __m512i even = load_row<kWhole>(from, stride, 2 * p, rows, columns);
      const __m512i odd = load_row<kWhole>(from, stride, 2 * p + 1, rows, columns);
      store_row(to + p * 32, _mm512_permutex2var_epi16(even, lower, odd));
      store_row(to + 512 + p * 32, _mm512_permutex2var_epi16(even, upper, odd));
    }
  }
};

struct InterleaveTransposeUnit {  // A from rows of A^T
  template <bool kWhole>
  static ODYSSEY_INLINE void pack(const bf16* from, int64_t stride, int64_t rows, __mmask32 columns,
                                  bf16* to) {
    for (int half = 0; half < 2; ++half) {
      const __m512i index = interleave_index(half == 1);
      __m512i r[16];
      for (int64_t p = 0; p < 16; ++p) {
        const __m512i even = load_row<kWhole>(from, stride, 2 * p, rows, columns);
        const __m512i odd = load_row<kWhole>(from, stride, 2 * p + 1, rows, columns);
        r[p] = _mm512_permutex2var_epi16(even, index, odd);
      }
      transpose16(r);
      for (int i = 0; i < 16; ++i) store_row(to + half * 512 + i * 32, r[i]);
    }
  }
};

template <class Unit>
void pack(const PackJob& job) {
  const int64_t units = (job.columns + 31) / 32;
  for (int64_t u = 0; u < units; ++u) {
    const bf16* from = job.from + u * 32;
    bf16* to = job.to + u * job.step;
    const int64_t columns = job.columns - u * 32;
    if (job.rows >= 32 && columns >= 32) {
      Unit::template pack<true>(from, job.stride, 32, ~__mmask32{0}, to);
    } else {
      const __mmask32 mask = columns >= 32 ? ~__mmask32{0} : (__mmask32{1} << columns) - 1;
      Unit::template pack<false>(from, job.stride, job.rows, mask, to);
    }
  }
}

// ---- multiplying ----

// Where a finished micro-tile goes: to the sums of its block (first or later chunk), or to C.
enum class Sink { kNowhere, kSetSums, kAddToSums, kSetBf16, kAddToBf16, kSetFloat, kAddToFloat };

// The micro-tile that left the tile registers last.
struct Finished {
  const float* tiles;  // [2 row halves][2 column halves][16][16] as the hardware stored them
  float* sums;         // the same layout; added to what `tiles` holds where `has_sums`
  bool has_sums;
  char* c;
  int64_t c_stride;  // bytes
  int64_t rows;
  __mmask16 lower, upper;  // columns inside of C
  bool streams;            // whole, and each row on cache-line boundaries: stores may bypass caches
};

ODYSSEY_INLINE __m512 widen(__m256i bf16s) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16s), 16));
}

template <Sink kSink>
ODYSSEY_INLINE void finish_row(const Finished& f, int64_t row) {
  const int64_t at = (row >> 4) * 512 + (row & 15) * 16;
  __m512 x = _mm512_load_ps(f.tiles + at), y = _mm512_load_ps(f.tiles + at + 256);
  if (kSink == Sink::kSetSums || kSink == Sink::kAddToSums) {
    if (kSink == Sink::kAddToSums) {
      x = _mm512_add_ps(x, _mm512_load_ps(f.sums + at));
      y = _mm512_add_ps(y, _mm512_load_ps(f.sums + at + 256));
    }
    _mm512_store_ps(f.sums + at, x);
    _mm512_store_ps(f.sums + at + 256, y);
    return;
  }
  if (f.has_sums) {
    x = _mm512_add_ps(x, _mm512_load_ps(f.sums + at));
    y = _mm512_add_ps(y, _mm512_load_ps(f.sums + at + 256));
  }
  if (row >= f.rows) return;
  char* c = f.c + row * f.c_stride;
  if (kSink == Sink::kSetBf16 || kSink == Sink::kAddToBf16) {
    const __mmask32 mask = _mm512_kunpackw(f.upper, f.lower);
    if (kSink == Sink::kAddToBf16) {
      const __m512i before = _mm512_maskz_loadu_epi16(mask, c);
      x = _mm512_add_ps(x, widen(_mm512_castsi512_si256(before)));
      y = _mm512_add_ps(y, widen(_mm512_extracti64x4_epi64(before, 1)));
    }
    const __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh(y, x);
    if (f.streams) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(c), rounded);
    } else {
      _mm512_mask_storeu_epi16(c, mask, rounded);
    }
  } else {
    float* to = reinterpret_cast<float*>(c);
    if (kSink == Sink::kAddToFloat) {
      x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(f.lower, to));
      y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(f.upper, to + 16));
    }
    if (kSink == Sink::kSetFloat && f.streams) {
      _mm512_stream_ps(to, x);
      _mm512_stream_ps(to + 16, y);
    } else {
      _mm512_mask_storeu_ps(to, f.lower, x);
      _mm512_mask_storeu_ps(to + 16, f.upper, y);
    }
  }
}

struct MicroTile {
  const bf16 *a, *b;
  int64_t units;
  // Cache lines to fetch per unit, beside the multiplications.
  const char *fetch_a, *fetch_b;
  int64_t a_lines, b_lines;
  const char* fetch_c;  // rows that will be read when this micro-tile is finished; null: none
};

// Multiplies one micro-tile; meanwhile finishes kRows rows per unit of the one before.
template <Sink kSink, int kRows>
__attribute__((noinline)) void micro_tile(const MicroTile& job, const Finished& finished,
                                          float* tiles) {
  const MicroTile j = job;
  const Finished f = finished;
  fence();
  const bf16 *a = j.a, *b = j.b;
  const char *fetch_a = j.fetch_a, *fetch_b = j.fetch_b, *fetch_c = j.fetch_c;
  int64_t row = 0;
  const auto finish_rows = [&]() __attribute__((always_inline)) {
    if (kSink != Sink::kNowhere && row < 32) {
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) finish_row<kSink>(f, row + i);
    }
    if (fetch_c != nullptr && row < 32) {
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        _mm_prefetch(fetch_c, _MM_HINT_T1);
        _mm_prefetch(fetch_c + 64, _MM_HINT_T1);
        fetch_c += f.c_stride;
      }
    }
    row += kRows;
  };
  const auto fetch = [&]() __attribute__((always_inline)) {
    for (int64_t i = 0; i < j.a_lines; ++i) _mm_prefetch(fetch_a + i * 64, _MM_HINT_T1);
    for (int64_t i = 0; i < j.b_lines; ++i) _mm_prefetch(fetch_b + i * 64, _MM_HINT_T1);
    fetch_a += j.a_lines * 64;
    fetch_b += j.b_lines * 64;
  };
  // Each old sum leaves its tile just before it is overwritten, so that the multiplier never waits.
  stream_tile<6>(b, kTileStride);
  load_tile<4>(a, kTileStride);
  store_tile<0>(tiles, kTileStride);
  zero_tile<0>();
  amx::multiply<0, 4, 6>();
  stream_tile<7>(b + 512, kTileStride);
  store_tile<1>(tiles + 256, kTileStride);
  zero_tile<1>();
  amx::multiply<1, 4, 7>();
  load_tile<5>(a + 512, kTileStride);
  store_tile<2>(tiles + 512, kTileStride);
  zero_tile<2>();
  amx::multiply<2, 5, 6>();
  store_tile<3>(tiles + 768, kTileStride);
  zero_tile<3>();
  amx::multiply<3, 5, 7>();
  finish_rows();
  fetch();
  for (int64_t k = 1; k < j.units; ++k) {
    a += kMatmulUnit;
    b += kMatmulUnit;
    stream_tile<6>(b, kTileStride);
    load_tile<4>(a, kTileStride);
    amx::multiply<0, 4, 6>();
    stream_tile<7>(b + 512, kTileStride);
    amx::multiply<1, 4, 7>();
    finish_rows();
    load_tile<5>(a + 512, kTileStride);
    amx::multiply<2, 5, 6>();
    amx::multiply<3, 5, 7>();
    fetch();
  }
  fence();
}

template <Sink kSink>
void micro_tile(const MicroTile& job, const Finished& finished, float* tiles) {
  if (job.units >= 16) return micro_tile<kSink, 2>(job, finished, tiles);
  if (job.units >= 8) return micro_tile<kSink, 4>(job, finished, tiles);
  if (job.units >= 4) return micro_tile<kSink, 8>(job, finished, tiles);
  return micro_tile<kSink, 32>(job, finished, tiles);
}

template <Sink kSink>
void finish_last(const Finished& finished) {
  for (int64_t row = 0; row < 32; ++row) finish_row<kSink>(finished, row);
}

void micro_tile(Sink sink, const MicroTile& job, const Finished& finished, float* tiles) {
  switch (sink) {
    case Sink::kNowhere:
      return micro_tile<Sink::kNowhere>(job, finished, tiles);
    case Sink::kSetSums:
      return micro_tile<Sink::kSetSums>(job, finished, tiles);
    case Sink::kAddToSums:
      return micro_tile<Sink::kAddToSums>(job, finished, tiles);
    case Sink::kSetBf16:
      return micro_tile<Sink::kSetBf16>(job, finished, tiles);
    case Sink::kAddToBf16:
      return micro_tile<Sink::kAddToBf16>(job, finished, tiles);
    case Sink::kSetFloat:
      return micro_tile<Sink::kSetFloat>(job, finished, tiles);
    case Sink::kAddToFloat:
      return micro_tile<Sink::kAddToFloat>(job, finished, tiles);
  }
}

Sink last_sink(const MatmulBlock& block) {
  if (block.is_bf16) return block.accumulate ? Sink::kAddToBf16 : Sink::kSetBf16;
  return block.accumulate ? Sink::kAddToFloat : Sink::kSetFloat;
}

__mmask16 first_columns(int64_t count) {
  if (count <= 0) return 0;
  return count >= 16 ? __mmask16{0xffff} : static_cast<__mmask16>((1U << count) - 1);
}

void multiply(const MatmulBlock& block) {
  const Tiles configured;
  alignas(64) float tiles[4 * 256];
  const int64_t chunks = matmul_chunks(block.units);
  const int64_t width = block.is_bf16 ? 2 : 4;  // bytes of an element of C
  const bool aligned = reinterpret_cast<uintptr_t>(block.c) % 64 == 0 && block.c_stride % 64 == 0;
  Sink sink = Sink::kNowhere;
  Finished finished{};
  finished.tiles = tiles;
  finished.c_stride = block.c_stride;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const int64_t begin = matmul_chunk_begin(block.units, chunk);
    const int64_t units = matmul_chunk_begin(block.units, chunk + 1) - begin;
    const bool is_last = chunk + 1 == chunks;
    const bf16* b = block.b + begin * block.panels * kMatmulUnit;
    // Fetched meanwhile: the next chunk of B, all micro-tiles of this chunk taking their share.
    const char* fetch_b = reinterpret_cast<const char*>(
        is_last ? block.next_b : b + units * block.panels * kMatmulUnit);
    const int64_t b_lines = (32 + block.strips - 1) / block.strips;
    const int64_t a_lines = (32 + block.panels - 1) / block.panels;
    for (int64_t strip = 0; strip < block.strips; ++strip) {
      const bf16* a = block.a + (strip * block.units + begin) * kMatmulUnit;
      // and the strip of A after the next.
      const int64_t ahead = strip + 2;
      const bf16* later =
          ahead < block.strips
              ? a + 2 * block.units * kMatmulUnit
              : block.a + ((ahead - block.strips) * block.units + begin + units) * kMatmulUnit;
      if (ahead >= block.strips && is_last) {
        later = block.next_a + (ahead - block.strips) * block.units * kMatmulUnit;
      }
      const char* fetch_a = reinterpret_cast<const char*>(later);
      for (int64_t panel = 0; panel < block.panels; ++panel) {
        char* c = static_cast<char*>(block.c) + strip * 32 * block.c_stride + panel * 32 * width;
        const bool reads_c = is_last && block.accumulate;
        const MicroTile job{a,       b + panel * units * kMatmulUnit,
                            units,   fetch_a,
                            fetch_b, a_lines,
                            b_lines, reads_c ? c : nullptr};
        micro_tile(sink, job, finished, tiles);
        fetch_a += units * a_lines * 64;
        fetch_b += units * b_lines * 64;
        const int64_t rows = block.rows - strip * 32, columns = block.columns - panel * 32;
        finished.sums = block.sums + (strip * block.panels + panel) * kMatmulUnit;
        finished.has_sums = chunk > 0;
        finished.c = c;
        finished.rows = rows;
        finished.lower = first_columns(columns);
        finished.upper = first_columns(columns - 16);
        finished.streams = aligned && columns >= 32;
        sink = is_last ? last_sink(block) : chunk == 0 ? Sink::kSetSums : Sink::kAddToSums;
      }
    }
  }
  store_tile<0>(tiles, kTileStride);
  store_tile<1>(tiles + 256, kTileStride);
  store_tile<2>(tiles + 512, kTileStride);
  store_tile<3>(tiles + 768, kTileStride);
  fence();
  switch (sink) {
    case Sink::kSetBf16:
      finish_last<Sink::kSetBf16>(finished);
      break;
    case Sink::kAddToBf16:
      finish_last<Sink::kAddToBf16>(finished);
      break;
    case Sink::kSetFloat:
      finish_last<Sink::kSetFloat>(finished);
      break;
    default:
      finish_last<Sink::kAddToFloat>(finished);
      break;
  }
  _mm_sfence();  // the stores that bypassed the caches must be seen before the thread reports
}

}  // namespace

extern const MatmulTileKernels kMatmulTilesAmx = {pack<CopyUnit>, pack<InterleaveTransposeUnit>,
                                                  pack<InterleaveUnit>, pack<TransposeUnit>,
                                                  multiply};

}  // namespace odyssey
