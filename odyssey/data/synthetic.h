// SPDX-License-Identifier: Apache-2.0
// SyntheticDataset: random tokens, as MaxText makes them. S + 1 uniform tokens a row, the inputs
// all but the last, the targets all but the first; every target counts, also that of a segment's
// last token; positions run from 0 to S-1 and do not restart. With packing and max_segments_per_row
// >= 2 a row is cut at random into 2 to that many segments; otherwise it is one.
#pragma once
#include <cstdint>
#include <string>

#include "odyssey/config/run_config.h"
#include "odyssey/data/batch.h"

namespace odyssey {

class SyntheticDataset : public Dataset {
 public:
  // The seed is config.shuffle_seed. With reuse_example_batch > 0 the micro-batches of the first
  // step come again in every step.
  SyntheticDataset(const DataConfig& config, int64_t vocabulary);

  Batch next(int64_t first_row, int64_t rows) override;
  std::string describe() const override;

 private:
  bool has_segments() const { return config_.packing && config_.max_segments_per_row >= 2; }
  void fill_segments(int64_t stream_row, int32_t* segments) const;

  DataConfig config_;
  int64_t vocabulary_;
  int64_t micro_batch_ = 0;
};

}  // namespace odyssey
