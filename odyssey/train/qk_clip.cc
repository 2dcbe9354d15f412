// SPDX-License-Identifier: Apache-2.0
#include "odyssey/train/qk_clip.h"

#include <algorithm>
#include <cmath>

#include "odyssey/base/bf16.h"
#include "odyssey/base/error.h"
#include "odyssey/kernels/elementwise.h"

namespace odyssey {
namespace {

// Elements [begin, end) of a group times `factor`, as far as they lie in this rank's shard.
void scale_part(float factor, int64_t begin, int64_t end, int64_t shard_begin,
                std::span<float> shard) {
  const auto size = static_cast<int64_t>(shard.size());
  const int64_t first = std::clamp<int64_t>(begin - shard_begin, 0, size);
  const int64_t last = std::clamp<int64_t>(end - shard_begin, 0, size);
  if (factor != 1) scale<float>(factor, shard.subspan(first, last - first));
}

}  // namespace

QkClipFactors qk_clip_factors(std::span<const float> max_logits, int64_t kv_heads,
                              double threshold) {
  const auto heads = static_cast<int64_t>(max_logits.size());
  ODYSSEY_CHECK(kv_heads >= 1 && heads % kv_heads == 0 && threshold > 0, "H={} K={} threshold={}",
                heads, kv_heads, threshold);
  const int64_t group = heads / kv_heads;
  const auto shrink = [&](int64_t h) {
    const double most = double{max_logits[h]};
    return std::isfinite(most) && most > threshold ? threshold / most : 1;
  };
  QkClipFactors factors;
  for (int64_t k = 0; k < kv_heads; ++k) {
    double least = 1;
    for (int64_t h = k * group; h < (k + 1) * group; ++h) least = std::min(least, shrink(h));
    factors.key.push_back(static_cast<float>(std::sqrt(least)));
    for (int64_t h = k * group; h < (k + 1) * group; ++h) {
      factors.query.push_back(static_cast<float>(shrink(h) / std::sqrt(least)));
      factors.clipped += shrink(h) < 1;
    }
  }
  return factors;
}

template <class T>
int64_t clip_query_key(const ModelConfig& model, std::span<const float> max_logits,
                       double threshold, ShardedParameters<T>& parameters) {
  const int64_t H = model.query_heads, K = model.kv_heads, D = model.head_size;
  int64_t clipped = 0;
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const QkClipFactors factors = qk_clip_factors(max_logits.subspan(layer * H, H), K, threshold);
    clipped += factors.clipped;
    const int64_t g = layer + 1;  // group 0 is the embedding
    const ParameterGroup& group = parameters.groups()[g];
    const std::span<float> shard = parameters.weights_of(g);
    // Rows of the tensor, or elements of the bias: first the query heads, then the key heads.
    const auto scale_heads = [&](const ParameterTensor& tensor, int64_t row_elements) {
      for (int64_t head = 0; head < H + K; ++head) {
        const float factor = head < H ? factors.query[head] : factors.key[head - H];
        const int64_t begin = tensor.offset + head * D * row_elements;
        scale_part(factor, begin, begin + D * row_elements, parameters.shard_begin(g), shard);
      }
    };
    scale_heads(group.tensor("query_key_value"), model.embedding);
    if (model.qkv_bias) scale_heads(group.tensor("query_key_value_bias"), 1);
  }
  return clipped;
}

template int64_t clip_query_key<float>(const ModelConfig&, std::span<const float>, double,
                                       ShardedParameters<float>&);
template int64_t clip_query_key<bf16>(const ModelConfig&, std::span<const float>, double,
                                      ShardedParameters<bf16>&);

}  // namespace odyssey
