// SPDX-License-Identifier: Apache-2.0
// Calls of block attention of several sizes, which `odyssey calibrate` times, and the seconds of a
// block by what was timed.
#pragma once
#include <memory>
#include <vector>

#include "odyssey/config/run_config.h"
#include "odyssey/plan/cpu_rates.h"
#include "odyssey/plan/rate_fit.h"

namespace odyssey {

struct AttentionShape {
  DataType data_type = DataType::kBfloat16;
  int64_t query_heads = 8, kv_heads = 2, head_size = 128;
  int64_t query_tile = 32;  // of the kernels in use
};

// One block: all queries see all keys, or each those before it.
struct BlockShape {
  int64_t queries = 0, keys = 0;
  bool causal = false;
  int64_t query_heads = 0, kv_heads = 0;
};
std::vector<BlockShape> block_shapes(const AttentionShape& shape, bool quick);

// The tensors of one rank, filled with random numbers, for all of these shapes.
class BlockCalls {
 public:
  virtual ~BlockCalls() = default;
  // A call on a fresh state, its result finished.
  virtual void forward(const BlockShape& block) = 0;
  // Adds to dq, dk and dv; after forward() of any shape.
  virtual void backward(const BlockShape& block) = 0;
};
std::unique_ptr<BlockCalls> make_block_calls(const AttentionShape& shape,
                                             const std::vector<BlockShape>& blocks);

// seconds[i]: of a core, of blocks[i].
BlockRates fit_block_rates(const std::vector<BlockShape>& blocks, int64_t query_tile,
                           const std::vector<double>& seconds, FitQuality& quality);

}  // namespace odyssey
