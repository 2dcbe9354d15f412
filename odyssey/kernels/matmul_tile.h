// SPDX-License-Identifier: Apache-2.0
// The inner contract of the bf16 products on tiles: what the file with the intrinsics supplies.
// Plain pointers only, because it is compiled with instruction-set flags and may hold no library
// code. Tiles are configured inside each call, so any thread may call.
//
// C = A B is cut into micro-tiles of 32 x 32. Both operands are packed into units of 32 x 32
// elements, two hardware tiles of 1 KiB each, padded with zeros:
//   A unit [2][16 rows][32 reduction]; B unit [2][16 reduction pairs][16 columns][2].
#pragma once
#include <cstdint>

#include "odyssey/base/bf16.h"

namespace odyssey {

inline constexpr int64_t kMatmulTile = 32;                         // edge of a unit
inline constexpr int64_t kMatmulUnit = kMatmulTile * kMatmulTile;  // elements of a unit
// Units of the reduction that are summed in tile registers before they join the sums in fp32: an A
// strip of 16 units is 32 KiB and stays in L1.
inline constexpr int64_t kMatmulChunk = 16;

// The reduction of `units` units is cut into chunks of nearly equal length; this is where one
// begins. Static, so that no copy with vector instructions can serve other files.
static inline int64_t matmul_chunks(int64_t units) {
  return (units + kMatmulChunk - 1) / kMatmulChunk;
}
static inline int64_t matmul_chunk_begin(int64_t units, int64_t chunk) {
  return units * chunk / matmul_chunks(units);
}

// Packs up to 32 source rows of `columns` elements, unit u to `to + u * step` elements.
struct PackJob {
  const bf16* from;
  int64_t stride;  // elements between source rows
  int64_t rows, columns;
  bf16* to;
  int64_t step;
};

// One block of C: `strips` x `panels` micro-tiles.
struct MatmulBlock {
  const bf16* a;  // [strips][units] A units
  const bf16* b;  // [chunk][panels][units of the chunk] B units
  int64_t strips, panels, units;
  // What will be wanted next, to be fetched towards the caches: A and B of the next block.
  const bf16 *next_a, *next_b;
  float* sums;  // [strips][panels][32 x 32], kept in L2 between chunks
  // C, row-major; rows x columns are what of the block lies inside of it.
  void* c;
  int64_t c_stride;  // bytes
  int64_t rows, columns;
  bool is_bf16, accumulate;
};

struct MatmulTileKernels {
  // A from rows of A, and from rows of A^T (source rows run along the reduction).
  void (*pack_a)(const PackJob&);
  void (*pack_a_transposed)(const PackJob&);
  // B from rows of B (source rows run along the reduction), and from rows of B^T.
  void (*pack_b)(const PackJob&);
  void (*pack_b_transposed)(const PackJob&);
  void (*multiply)(const MatmulBlock&);
};

#if defined(__x86_64__)
extern const MatmulTileKernels kMatmulTilesAmx;
#endif

}  // namespace odyssey
