// SPDX-License-Identifier: Apache-2.0
#include "odyssey/data/batch.h"

namespace odyssey {

Batch padded_batch(int64_t rows, int64_t sequence_length) {
  Batch batch;
  batch.rows = rows;
  batch.sequence_length = sequence_length;
  const auto size = static_cast<size_t>(rows * sequence_length);
  for (auto* values :
       {&batch.tokens, &batch.targets, &batch.target_weights, &batch.positions, &batch.segments}) {
    values->resize(size);
  }
  return batch;
}

}  // namespace odyssey
