// SPDX-License-Identifier: Apache-2.0
#include "odyssey/train/flops.h"

#include <algorithm>

namespace odyssey {
namespace {

// Forward operations of one row of S tokens in the attention of one layer of that mask.
double attention_flops(const ModelConfig& model, const MaskRule& mask, double length) {
  const double width = static_cast<double>(model.query_heads * model.head_size);
  const double window = std::min(length, static_cast<double>(mask.window));
  switch (mask.kind) {
    case MaskKind::kFull:
      return 4 * length * length * width;
    case MaskKind::kCausal:
      return 4 * length * length * width / 2;
    case MaskKind::kLocalSliding:
      return 4 * (length * window - window * window / 2) * width;
    case MaskKind::kChunk: {
      const double whole =
          window > 0 ? static_cast<double>(static_cast<int64_t>(length / window)) : 0;
      const double rest = length - whole * window;
      return 4 * (whole * window * window + rest * rest) * width / 2;
    }
  }
  return 0;
}

}  // namespace

double step_tokens(const RunConfig& config) {
  return static_cast<double>(config.data.sequence_length) *
         static_cast<double>(config.data.global_batch_rows) *
         static_cast<double>(config.data.gradient_accumulation_steps) / config.parallel.ranks();
}

StepTeraflops step_teraflops(const RunConfig& config) {
  const ModelConfig& m = config.model;
  const double length = static_cast<double>(config.data.sequence_length);
  const double tokens = step_tokens(config), rows = tokens / length;
  const auto d = [](int64_t x) { return static_cast<double>(x); };
  const double mlp = 3 * 2 * d(m.mlp) * d(m.embedding);
  const double qkv = 2 * d(m.embedding) * d((m.query_heads + 2 * m.kv_heads) * m.head_size);
  const double output = 2 * d(m.embedding) * d(m.query_heads * m.head_size);
  const double head = 2 * d(m.embedding) * d(m.vocabulary);
  double attention = 0;
  for (const MaskShare& share : mask_shares(m)) {
    attention += attention_flops(m, share.mask, length) * d(share.layers);
  }
  // Backward costs twice the forward.
  return {3 * tokens * ((mlp + qkv + output) * d(m.layers) + head) / 1e12,
          3 * rows * attention / 1e12};
}

}  // namespace odyssey
