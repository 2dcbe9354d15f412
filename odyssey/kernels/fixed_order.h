// SPDX-License-Identifier: Apache-2.0
// Sums over rows in an order that depends on the number of rows alone, so that any number of
// threads gives the same bits.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "odyssey/base/parallel_for.h"

namespace odyssey {

// Items are cut into at most 64 pieces: enough for the threads of one rank, little enough scratch.
struct FixedPieces {
  static constexpr int64_t kMost = 64;
  int64_t items, length;  // length: items in a piece; the last one may be shorter

  FixedPieces(int64_t item_count, int64_t least_length)
      : items(item_count), length(std::max(least_length, (item_count + kMost - 1) / kMost)) {}
  int64_t count() const { return (items + length - 1) / length; }
  int64_t begin(int64_t piece) const { return piece * length; }
  int64_t end(int64_t piece) const { return std::min(items, (piece + 1) * length); }
};

// Scratch of the calling thread for the function below.
float* fixed_order_scratch(int64_t size);

// totals[c] += what add_row(row, sums) adds to sums[c], over all rows. Also runs whatever else
// add_row does to its row, once a row, in parallel.
template <class AddRow>
void add_rows_in_fixed_order(int64_t rows, std::span<float> totals, const AddRow& add_row) {
  const int64_t columns = static_cast<int64_t>(totals.size());
  const FixedPieces pieces(rows, 16);
  float* sums = fixed_order_scratch(pieces.count() * columns);
  parallel_for(pieces.count(), [&](int64_t piece) {
    float* mine = sums + piece * columns;
    std::fill_n(mine, columns, 0.0f);
    for (int64_t row = pieces.begin(piece); row < pieces.end(piece); ++row) add_row(row, mine);
  });
  float* total = totals.data();
  parallel_ranges(columns, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t piece = 0; piece < pieces.count(); ++piece) {
      const float* part = sums + piece * columns;
#pragma omp simd
      for (int64_t c = begin; c < end; ++c) total[c] += part[c];
    }
  });
}

}  // namespace odyssey
