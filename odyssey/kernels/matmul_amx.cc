// SPDX-License-Identifier: Apache-2.0
// C is cut into panels of columns and those into blocks of rows. A is packed first, by all threads;
// then each thread takes panels, packs B for one and multiplies its blocks. An element of C is
// summed by one thread, in an order that depends on the length of the reduction alone.
#include "odyssey/kernels/matmul_amx.h"

#include <algorithm>
#include <atomic>

#include "odyssey/base/error.h"
#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/matmul_tile.h"
#include "odyssey/kernels/scratch.h"

namespace odyssey {
namespace {

#if defined(__x86_64__)

// Edge of a block of C, in micro-tiles: 512 x 512 sums are 1 MiB of the 2 MiB of L2.
constexpr int64_t kBlock = 16;
// A is packed in parts of at most this many elements (128 MiB), which bounds the scratch of a rank.
constexpr int64_t kMostPackedA = int64_t{64} << 20;
// Multiplications worth a thread: about 10 us, what it costs to wake one.
constexpr int64_t kLeastPerThread = int64_t{4} << 20;

int64_t up(int64_t value, int64_t step) {
  return (value + step - 1) / step;
}

// All extents in units of 32.
struct Plan {
  int64_t strips, columns, inner;  // C is strips x columns
  int64_t part;                    // strips of A packed at once
  int64_t panel, panels;           // columns of a panel, number of panels
  int64_t block, blocks;           // strips of a block, number of blocks in a part
  int64_t pieces;                  // of the blocks of all panels, each done by one thread
  int64_t threads;                 // at most; each has room for a panel of B and a block of C

  int64_t packed_a() const { return part * inner * kMatmulUnit; }
  int64_t packed_panel() const { return panel * inner * kMatmulUnit; }
  int64_t block_sums() const { return panel * block * kMatmulUnit; }
  int64_t scratch_bytes() const {
    return 2 * packed_a() + threads * (2 * packed_panel() + 4 * block_sums());
  }
};

Plan make_plan(int64_t rows, int64_t columns, int64_t inner) {
  Plan p{};
  const int64_t worth = std::max<int64_t>(1, rows * columns * inner / kLeastPerThread);
  const int64_t threads = std::min<int64_t>(thread_count(), worth);
  p.strips = up(rows, kMatmulTile);
  p.columns = up(columns, kMatmulTile);
  p.inner = up(inner, kMatmulTile);
  const int64_t most = std::max(kBlock, kMostPackedA / (p.inner * kMatmulUnit));
  p.part = up(p.strips, up(p.strips, most));
  p.panels = up(p.columns, kBlock);
  // As many for each thread, where that leaves them wide enough.
  if (p.panels >= threads) p.panels = up(p.panels, threads) * threads;
  p.panel = up(p.columns, p.panels);
  p.panels = up(p.columns, p.panel);
  p.block = up(p.part, up(p.part, kBlock));
  const bool panels_suffice = p.panels >= 2 * threads || p.panels % threads == 0;
  while (!panels_suffice && p.block > 2 && p.panels * up(p.part, p.block) < 2 * threads) {
    p.block = up(p.block, 2);
  }
  p.blocks = up(p.part, p.block);
  p.pieces = panels_suffice ? p.panels : std::min(threads, p.panels * p.blocks);
  p.threads = std::min(threads, p.pieces);
  return p;
}

class Product {
 public:
  Product(const AmxOperand& a, const AmxOperand& b, const AmxResult& c, bool accumulate)
      : a_(a),
        b_(b),
        c_(c),
        accumulate_(accumulate),
        plan_(make_plan(c.rows, c.columns, a.columns)) {
    thread_local Scratch<std::byte> room;
    std::byte* memory = room.at_least(plan_.scratch_bytes());
    packed_a_ = reinterpret_cast<bf16*>(memory);
    packed_b_ = packed_a_ + plan_.packed_a();
    sums_ = reinterpret_cast<float*>(packed_b_ + plan_.threads * plan_.packed_panel());
  }

  void run() {
    for (int64_t first = 0; first < plan_.strips; first += plan_.part) {
      const int64_t strips = std::min(plan_.part, plan_.strips - first);
      pack_a(first, strips);
      std::atomic<int64_t> next{0};
      parallel_for(plan_.threads, [&](int64_t slot) {
        int64_t packed = -1;  // the panel that this slot holds
        for (int64_t piece = next++; piece < plan_.pieces; piece = next++) {
          run_piece(piece, slot, first, strips, packed);
        }
      });
    }
  }

 private:
  // Strips [first, first + strips) of A, [strip][inner] units.
  void pack_a(int64_t first, int64_t strips) {
    const int64_t inner = plan_.inner, row = first * kMatmulTile;
    const int64_t rows = std::min(strips * kMatmulTile, a_.rows - row);
    if (a_.transposed) {
      parallel_ranges(inner, up(inner, plan_.threads), [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) {
          kMatmulTilesAmx.pack_a_transposed({a_.data + k * kMatmulTile * a_.stride + row, a_.stride,
                                             std::min(kMatmulTile, a_.columns - k * kMatmulTile),
                                             rows, packed_a_ + k * kMatmulUnit,
                                             inner * kMatmulUnit});
        }
      });
      return;
    }
    parallel_ranges(strips, up(strips, plan_.threads), [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) {
        kMatmulTilesAmx.pack_a({a_.data + (row + s * kMatmulTile) * a_.stride, a_.stride,
                                std::min(kMatmulTile, rows - s * kMatmulTile), a_.columns,
                                packed_a_ + s * inner * kMatmulUnit, kMatmulUnit});
      }
    });
  }

  // Panel of B, [chunk][column][unit of the chunk] units.
  void pack_b(int64_t panel, bf16* to) const {
    const int64_t first = panel * plan_.panel;
    const int64_t width = std::min(plan_.panel, plan_.columns - first);
    const int64_t column = first * kMatmulTile;
    const int64_t columns = std::min(width * kMatmulTile, b_.columns - column);
    for (int64_t chunk = 0; chunk < matmul_chunks(plan_.inner); ++chunk) {
      const int64_t begin = matmul_chunk_begin(plan_.inner, chunk);
      const int64_t units = matmul_chunk_begin(plan_.inner, chunk + 1) - begin;
      bf16* chunk_to = to + begin * width * kMatmulUnit;
      const int64_t row = begin * kMatmulTile;
      const int64_t rows = std::min(units * kMatmulTile, b_.rows - row);
      if (b_.transposed) {
        for (int64_t n = 0; n < width; ++n) {
          kMatmulTilesAmx.pack_b_transposed({b_.data + (column + n * kMatmulTile) * b_.stride + row,
                                             b_.stride,
                                             std::min(kMatmulTile, columns - n * kMatmulTile), rows,
                                             chunk_to + n * units * kMatmulUnit, kMatmulUnit});
        }
      } else {
        for (int64_t k = 0; k < units; ++k) {
          kMatmulTilesAmx.pack_b({b_.data + (row + k * kMatmulTile) * b_.stride + column, b_.stride,
                                  std::min(kMatmulTile, rows - k * kMatmulTile), columns,
                                  chunk_to + k * kMatmulUnit, units * kMatmulUnit});
        }
      }
    }
  }

  // Blocks of all panels, panel after panel, are cut into equal pieces.
  void run_piece(int64_t piece, int64_t slot, int64_t first, int64_t strips,
                 int64_t& packed) const {
    const int64_t blocks = up(strips, plan_.block), items = plan_.panels * blocks;
    const int64_t end = items * (piece + 1) / plan_.pieces;
    bf16* b = packed_b_ + slot * plan_.packed_panel();
    for (int64_t item = items * piece / plan_.pieces; item < end; ++item) {
      if (packed != item / blocks) {
        packed = item / blocks;
        pack_b(packed, b);
      }
      const int64_t begin = item % blocks * plan_.block;
      const int64_t row = (first + begin) * kMatmulTile;
      const int64_t column = packed * plan_.panel * kMatmulTile;
      MatmulBlock block{};
      block.strips = std::min(plan_.block, strips - begin);
      block.panels = std::min(plan_.panel, plan_.columns - packed * plan_.panel);
      block.units = plan_.inner;
      block.a = packed_a_ + begin * plan_.inner * kMatmulUnit;
      block.b = b;
      const bool wraps = begin + block.strips >= strips;
      block.next_a = wraps ? packed_a_ : block.a + block.strips * plan_.inner * kMatmulUnit;
      block.next_b = b;
      block.sums = sums_ + slot * plan_.block_sums();
      const int64_t width = c_.is_bf16 ? 2 : 4;  // bytes of an element
      block.c = static_cast<std::byte*>(c_.data) + (row * c_.stride + column) * width;
      block.c_stride = c_.stride * width;
      block.rows = c_.rows - row;
      block.columns = c_.columns - column;
      block.is_bf16 = c_.is_bf16;
      block.accumulate = accumulate_;
      kMatmulTilesAmx.multiply(block);
    }
  }

  const AmxOperand& a_;
  const AmxOperand& b_;
  const AmxResult& c_;
  const bool accumulate_;
  const Plan plan_;
  bf16 *packed_a_, *packed_b_;
  float* sums_;
};

#endif

}  // namespace

// Time of oneDNN 2.6.3 over ours, one thread, plain layouts, rows x columns x inner:
//   y, dx: 64^3 2.0, 32x128x128 1.8, 128^3 1.04, 512x128x128 0.81, 256^3 0.81-0.94,
//     128x512x512 1.05-1.28, 1024x256x256 1.00, 1024x512x128 1.0-1.1, 2048x256x64 0.71,
//     8x1024x1024 0.6, 32x1024x1024 0.97, 128x1024x1024 0.97-1.09, 256x1024x1024 1.14-1.37,
//     512^3 1.25, 2048x4096x4096 1.7-2.3
//   dw (transposed): 1.0-2.4 throughout, but 0.85 for a single token.
// Packing serves columns (A) and rows (B) times, hence the harmonic mean; tiny products are won
// because a call of oneDNN costs a few microseconds.
bool amx_is_faster(const AmxShape& s) {
  if (std::min({s.rows, s.columns, s.inner}) < 8) return false;
  if (s.transposed || s.rows * s.columns * s.inner <= int64_t{1} << 19) return true;
  const int64_t mean = 2 * s.rows * s.columns / (s.rows + s.columns);
  return mean >= 1024 ? s.inner >= 128 : mean >= 400 && s.inner >= 512;
}

int64_t amx_scratch_bytes(const AmxShape& s) {
#if defined(__x86_64__)
  return make_plan(s.rows, s.columns, s.inner).scratch_bytes();
#else
  return 0 * s.rows;
#endif
}

void multiply_amx(const AmxOperand& a, const AmxOperand& b, const AmxResult& c, bool accumulate) {
#if defined(__x86_64__)
  Product(a, b, c, accumulate).run();
#else
  ODYSSEY_CHECK(false, "no AMX on this machine: [{}, {}] x [{}, {}], {}", a.rows, a.columns, b.rows,
                c.columns, accumulate);
#endif
}

}  // namespace odyssey
