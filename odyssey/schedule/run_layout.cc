// SPDX-License-Identifier: Apache-2.0
#include "odyssey/schedule/run_layout.h"

#include <utility>

namespace odyssey {

AttentionLayout run_layout(const RunConfig& run, int64_t batch) {
  const ParallelConfig& p = run.parallel;
  const ModelConfig& model = run.model;
  AttentionLayout layout{
      Placement(p.placement, run.data.sequence_length, p.ring_size, p.ulysses_size),
      HeadMap(model.query_heads, model.kv_heads, p.ulysses_size)};
  layout.outer_gather = p.outer_gather;
  layout.batch = batch;
  layout.head_size = model.head_size;
  layout.element_bytes = model.data_type == DataType::kFloat32 ? 4 : 2;
  return with_mask(std::move(layout), model.masks.front());
}

}  // namespace odyssey
