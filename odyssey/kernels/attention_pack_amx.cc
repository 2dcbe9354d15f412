// SPDX-License-Identifier: Apache-2.0
// Packs keys and values of bf16 block attention into the operands of tile products.
#include "odyssey/kernels/attention_tile_amx_simd.h"

namespace odyssey::amx {

void pack_rows(const uint16_t* from, int64_t stride, int64_t rows, const Shape& shape,
               uint16_t* to) {
  for (int64_t row = 0; row < kKeys; ++row) {
    for (int64_t step = 0; step < shape.steps; ++step) {
      uint16_t* tile = to + (row / 16 * shape.steps + step) * 512;
      _mm512_store_si512(tile + row % 16 * 32,
                         load_row(from, stride, row, rows, step, shape.head_size));
    }
  }
}

// [2 * steps][2][16 columns][32 rows]
void pack_transposed(const uint16_t* from, int64_t stride, int64_t rows, const Shape& shape,
                     uint16_t* to) {
  for (int64_t part = 0; part < 2; ++part) {
    for (int64_t step = 0; step < shape.steps; ++step) {
      __m512i low[16], high[16];
      for (int64_t pair = 0; pair < 16; ++pair) {
        const int64_t row = part * 32 + 2 * pair;
        interleave(load_row(from, stride, row, rows, step, shape.head_size),
                   load_row(from, stride, row + 1, rows, step, shape.head_size), low[pair],
                   high[pair]);
      }
      transpose16(low);
      transpose16(high);
      for (int64_t d = 0; d < 16; ++d) {
        _mm512_store_si512(to + step * 2048 + part * 512 + d * 32, low[d]);
        _mm512_store_si512(to + step * 2048 + 1024 + part * 512 + d * 32, high[d]);
      }
    }
  }
}

}  // namespace odyssey::amx
