// SPDX-License-Identifier: Apache-2.0
// Batch: whole rows of S tokens in natural order, as they come from a data set. Targets are shifted
// here, once, on the whole row; nothing behind this point shifts again.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace odyssey {

struct Batch {
  int64_t rows = 0;             // B
  int64_t sequence_length = 0;  // S
  // Each [B, S], row-major.
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;         // the next token of the same document
  std::vector<int32_t> target_weights;  // 1 where the target counts, 0 where there is none
  std::vector<int32_t> positions;       // within the segment (synthetic: the row), for RoPE
  std::vector<int32_t> segments;        // 1, 2, ... per row; 0 = padding
};

// Rows of nothing but padding, to be filled.
Batch padded_batch(int64_t rows, int64_t sequence_length);

// An endless, deterministic stream of rows, the same on every rank. Row g of micro-batch i is a
// pure function of (configuration, i, g), whoever asks.
class Dataset {
 public:
  virtual ~Dataset() = default;
  // Rows [first_row, first_row + rows) of the next micro-batch; every call moves on by one
  // micro-batch. next(0, 0) skips one cheaply, as a resumed run needs it.
  virtual Batch next(int64_t first_row, int64_t rows) = 0;
  // One line for the user: what the rows are made of and what was left out.
  virtual std::string describe() const = 0;
};

}  // namespace odyssey
