// SPDX-License-Identifier: Apache-2.0
#include "odyssey/model/parameters.h"

#include <algorithm>
#include <cmath>

#include "odyssey/base/error.h"
#include "odyssey/base/parallel_for.h"
#include "odyssey/base/random.h"

namespace odyssey {
namespace {

// Deviation of embedding and head: small logits, so that training starts at a loss of about ln V.
constexpr double kEmbeddingDeviation = 0.02;

class GroupBuilder {
 public:
  explicit GroupBuilder(std::string name) { group_.name = std::move(name); }

  void matrix(const std::string& name, int64_t rows, int64_t columns, double deviation) {
    add({name, rows, columns, 0, deviation, 0});
  }
  void vector(const std::string& name, int64_t size, double value) {
    add({name, 1, size, 0, 0, value});
  }
  ParameterGroup take() { return std::move(group_); }

 private:
  void add(ParameterTensor tensor) {
    tensor.offset = group_.size;
    group_.size += tensor.size();
    group_.tensors.push_back(std::move(tensor));
  }
  ParameterGroup group_;
};

ParameterGroup layer_group(const ModelConfig& c, int64_t layer) {
  const double norm = c.norm_adds_one ? 0 : 1;
  const int64_t qkv = (c.query_heads + 2 * c.kv_heads) * c.head_size;
  const auto fan_in = [](int64_t inputs) { return 1 / std::sqrt(static_cast<double>(inputs)); };
  // Projections into the residual stream shrink with depth, so that its variance does not grow
  // (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3).
  const double depth = 1 / std::sqrt(2.0 * static_cast<double>(c.layers));
  GroupBuilder group("layer " + std::to_string(layer));
  group.vector("input_norm", c.embedding, norm);
  group.matrix("query_key_value", qkv, c.embedding, fan_in(c.embedding));
  if (c.qkv_bias) group.vector("query_key_value_bias", qkv, 0);
  if (c.qk_norm) {
    group.vector("query_norm", c.head_size, norm);
    group.vector("key_norm", c.head_size, norm);
  }
  // A logit of 0 beside scores of variance about 1: each key and the sink weigh alike.
  if (c.attention_sink) group.vector(kSinks, c.query_heads, 0);
  group.matrix("attention_output", c.embedding, c.query_heads * c.head_size,
               depth * fan_in(c.query_heads * c.head_size));
  if (c.attention_output_norm) group.vector("attention_output_norm", c.embedding, norm);
  group.vector("post_attention_norm", c.embedding, norm);
  group.matrix("gate_up", 2 * c.mlp, c.embedding, fan_in(c.embedding));
  group.matrix("down", c.embedding, c.mlp, depth * fan_in(c.mlp));
  if (c.mlp_output_norm) group.vector("mlp_output_norm", c.embedding, norm);
  return group.take();
}

}  // namespace

const ParameterTensor& ParameterGroup::tensor(std::string_view tensor_name) const {
  for (const ParameterTensor& tensor : tensors) {
    if (tensor.name == tensor_name) return tensor;
  }
  ODYSSEY_CHECK(false, "group {} has no tensor {}", name, tensor_name);
}

bool ParameterGroup::has(std::string_view tensor_name) const {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const ParameterTensor& tensor) { return tensor.name == tensor_name; });
}

std::vector<ParameterGroup> parameter_groups(const ModelConfig& config) {
  std::vector<ParameterGroup> groups;
  const double norm = config.norm_adds_one ? 0 : 1;
  GroupBuilder embedding("embedding");
  embedding.matrix("embedding", config.vocabulary, config.embedding, kEmbeddingDeviation);
  if (config.tied_head) embedding.vector("final_norm", config.embedding, norm);
  groups.push_back(embedding.take());
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    groups.push_back(layer_group(config, layer));
  }
  if (!config.tied_head) {
    GroupBuilder head("head");
    head.vector("final_norm", config.embedding, norm);
    head.matrix("head", config.vocabulary, config.embedding, kEmbeddingDeviation);
    groups.push_back(head.take());
  }
  return groups;
}

int64_t parameter_total(const std::vector<ParameterGroup>& groups) {
  int64_t total = 0;
  for (const ParameterGroup& group : groups) total += group.size;
  return total;
}

void initialize(const ParameterGroup& group, int64_t group_index, uint64_t seed, int64_t begin,
                std::span<float> out) {
  const int64_t end = begin + static_cast<int64_t>(out.size());
  for (size_t t = 0; t < group.tensors.size(); ++t) {
    const ParameterTensor& tensor = group.tensors[t];
    const int64_t first = std::max(begin, tensor.offset);
    const int64_t last = std::min(end, tensor.offset + tensor.size());
    if (first >= last) continue;
    if (tensor.initial_deviation == 0) {
      std::fill(out.begin() + (first - begin), out.begin() + (last - begin),
                static_cast<float>(tensor.initial_value));
      continue;
    }
    const Random random(seed, static_cast<uint64_t>(group_index) * 64 + t);
    parallel_ranges(last - first, 4096, [&](int64_t piece_begin, int64_t piece_end) {
      for (int64_t i = first + piece_begin; i < first + piece_end; ++i) {
        const auto index = static_cast<uint64_t>(i - tensor.offset);
        out[i - begin] =
            static_cast<float>(tensor.initial_deviation * random.truncated_normal(index));
      }
    });
  }
}

}  // namespace odyssey
