// SPDX-License-Identifier: Apache-2.0
// TextDataset: rows of bytes from a file or folder; a token is a byte. Every segment of a row is a
// document or a piece of one. A token's target is the next byte of the same document, also where
// that byte opens the next row; the last byte of a document has none (target 0, weight 0), nor has
// padding (segment 0, token 0). Positions restart in every segment: attention sees only differences
// within a segment, and small positions keep RoPE's fp32 angles accurate however long a document
// is.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "odyssey/config/run_config.h"
#include "odyssey/data/batch.h"
#include "odyssey/data/packing.h"
#include "odyssey/data/text_files.h"

namespace odyssey {

class TextDataset : public Dataset {
 public:
  // Throws UserError for fewer than 256 tokens in the vocabulary. Without packing a row holds one
  // document or the next piece of a long one. With reuse_example_batch > 0 the micro-batches of the
  // first step come again in every step.
  TextDataset(const DataConfig& config, int64_t vocabulary);

  Batch next(int64_t first_row, int64_t rows) override;
  std::string describe() const override { return "text: " + files_.describe(); }

 private:
  void fill_row(const std::vector<Piece>& pieces, int64_t row, Batch& batch);

  DataConfig config_;
  TextFiles files_;
  RowPlanner planner_;
  int64_t micro_batch_ = 0;
};

}  // namespace odyssey
