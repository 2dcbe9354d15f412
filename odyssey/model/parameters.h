// SPDX-License-Identifier: Apache-2.0
// The parameters of a decoder: which tensors there are, where they lie, and how they start. They
// come in groups; a group is one flat array, and what is gathered, worked on and reduced at once:
// the embedding, each layer, the head.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "odyssey/base/view.h"
#include "odyssey/config/run_config.h"

namespace odyssey {

struct ParameterTensor {
  std::string name;
  int64_t rows = 0, columns = 0;  // [rows, columns]; vectors have one row
  int64_t offset = 0;             // first element within its group
  double initial_deviation = 0;   // of a truncated normal; 0: the constant below
  double initial_value = 0;
  int64_t size() const { return rows * columns; }
};

// The name of the sinks, which weight decay leaves alone.
inline constexpr const char* kSinks = "attention_sinks";

struct ParameterGroup {
  std::string name;
  std::vector<ParameterTensor> tensors;
  int64_t size = 0;

  // The tensor of that name; a broken invariant if there is none.
  const ParameterTensor& tensor(std::string_view tensor_name) const;
  bool has(std::string_view tensor_name) const;
};

// The values of one tensor within those of its group: weights of any type, or gradients.
template <class E>
View<E, 2> matrix_of(const ParameterGroup& group, std::span<E> values, std::string_view name) {
  const ParameterTensor& tensor = group.tensor(name);
  return {values.data() + tensor.offset, {tensor.rows, tensor.columns}};
}
template <class E>
std::span<E> vector_of(const ParameterGroup& group, std::span<E> values, std::string_view name) {
  const ParameterTensor& tensor = group.tensor(name);
  return values.subspan(tensor.offset, tensor.size());
}

// Group 0 is the embedding, 1..L are the layers, L + 1 the head. With a tied head there is no group
// L + 1; the final norm then lies with the embedding.
//   embedding: embedding [V, E]
//   layer:     input_norm [E], query_key_value [(H+2K)D, E] (+ _bias), query_norm, key_norm [D]
//              (qwen3), attention_sinks [H] (gpt-oss), attention_output [E, H D],
//              attention_output_norm [E] (gemma2), post_attention_norm [E], gate_up [2F, E],
//              down [E, F], mlp_output_norm [E] (gemma2)
//   head:      final_norm [E], head [V, E]
std::vector<ParameterGroup> parameter_groups(const ModelConfig& config);
int64_t parameter_total(const std::vector<ParameterGroup>& groups);

// Writes elements [begin, begin + out.size()) of a group. Any rank can make any part, and the
// values do not depend on how parts are cut.
void initialize(const ParameterGroup& group, int64_t group_index, uint64_t seed, int64_t begin,
                std::span<float> out);

}  // namespace odyssey
