// SPDX-License-Identifier: Apache-2.0
#include "odyssey/data/dataset.h"

#include <limits>

#include "odyssey/base/error.h"
#include "odyssey/data/synthetic.h"
#include "odyssey/data/text.h"

namespace odyssey {

std::unique_ptr<Dataset> make_dataset(const DataConfig& config, int64_t vocabulary) {
  ODYSSEY_CHECK(config.sequence_length >= 1 && config.global_batch_rows >= 1 &&
                    config.gradient_accumulation_steps >= 1,
                "S {}, rows {}, micro-batches {}", config.sequence_length, config.global_batch_rows,
                config.gradient_accumulation_steps);
  ODYSSEY_CHECK(vocabulary >= 1 && vocabulary <= std::numeric_limits<int32_t>::max(),
                "vocabulary {}", vocabulary);
  switch (config.type) {
    case DatasetType::kSynthetic:
      return std::make_unique<SyntheticDataset>(config, vocabulary);
    case DatasetType::kText:
      return std::make_unique<TextDataset>(config, vocabulary);
  }
  ODYSSEY_CHECK(false, "data set type {}", static_cast<int>(config.type));
  return nullptr;
}

}  // namespace odyssey
