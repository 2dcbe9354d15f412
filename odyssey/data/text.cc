// SPDX-License-Identifier: Apache-2.0
#include "odyssey/data/text.h"

#include "odyssey/base/error.h"

namespace odyssey {

TextDataset::TextDataset(const DataConfig& config, int64_t vocabulary)
    : config_(config),
      files_(config.text_path, config.text_document_separator),
      planner_(files_.lengths(),
               {.row_length = config.sequence_length,
                .segments_per_row = config.packing ? config.max_segments_per_row : 1,
                .shuffle = config.shuffle,
                .seed = config.shuffle_seed}) {
  if (vocabulary < 256) {
    throw user_error("vocab_size for dataset_type=text", "at least 256, one token for each byte",
                     fmt::format("{}", vocabulary), "Raise vocab_size to 256 or more.");
  }
}

Batch TextDataset::next(int64_t first_row, int64_t rows) {
  const int64_t all_rows = config_.global_batch_rows;
  ODYSSEY_CHECK(first_row >= 0 && rows >= 0 && first_row + rows <= all_rows, "rows [{}, {}) of {}",
                first_row, first_row + rows, all_rows);
  Batch batch = padded_batch(rows, config_.sequence_length);
  std::vector<Piece> pieces;
  for (int64_t row = 0; row < all_rows; ++row) {
    planner_.next_row(pieces);
    if (row >= first_row && row < first_row + rows) fill_row(pieces, row - first_row, batch);
  }
  ++micro_batch_;
  if (config_.reuse_example_batch > 0 && micro_batch_ == config_.gradient_accumulation_steps) {
    micro_batch_ = 0;
    planner_.restart();
  }
  return batch;
}

void TextDataset::fill_row(const std::vector<Piece>& pieces, int64_t row, Batch& batch) {
  int64_t i = row * batch.sequence_length;
  int32_t segment = 0;
  for (const Piece& piece : pieces) {
    ++segment;
    const auto document = files_.bytes(piece.document);
    const int64_t document_length = static_cast<int64_t>(document.size());
    for (int64_t p = piece.begin; p < piece.begin + piece.length; ++p, ++i) {
      const bool has_target = p + 1 < document_length;
      batch.tokens[i] = static_cast<int32_t>(document[p]);
      batch.targets[i] = has_target ? static_cast<int32_t>(document[p + 1]) : 0;
      batch.target_weights[i] = has_target ? 1 : 0;
      batch.positions[i] = static_cast<int32_t>(p - piece.begin);
      batch.segments[i] = segment;
    }
  }
}

}  // namespace odyssey
