// SPDX-License-Identifier: Apache-2.0
// The whole decoder on one rank's share of the tokens: embedding, layers, head and loss, forward
// and backward in one call. Only the inputs of the layers are kept between the two (full
// recompute), and the logits exist a chunk of rows at a time, never as a whole [T, V].
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "odyssey/base/buffer.h"
#include "odyssey/comm/mesh.h"
#include "odyssey/config/run_config.h"
#include "odyssey/context/parallel_attention.h"
#include "odyssey/model/layer.h"
#include "odyssey/model/sharded_parameters.h"

namespace odyssey {

// The attention layout that a configuration asks for, for `batch` rows on each batch slice, with
// the mask of the first layer.
AttentionLayout attention_layout(const RunConfig& config, int64_t batch);
// Rows of the batch on each of the data x fsdp slices.
int64_t batch_rows_of_slice(const RunConfig& config);

// What one rank gets of a micro-batch: its rows, in storage order, [B, T] each.
struct LocalBatch {
  std::vector<int32_t> tokens, targets, positions;
  std::vector<float> weights;     // 1 where the target counts, 0 where not
  std::vector<int32_t> segments;  // [B, S], whole rows in natural order
};

// Sums over this rank's tokens; divide only after all ranks have been added.
struct LossSum {
  double loss = 0;
  double weight = 0;
};

template <class T>
class Decoder {
 public:
  Decoder(const RunConfig& config, Mesh& mesh);

  ShardedParameters<T>& parameters() { return parameters_; }
  // With the mask of the first layer; the others differ in nothing but that.
  const AttentionLayout& layout() const { return layout_; }

  // Adds the gradient of the *sum* of the losses to the gradient shards of parameters().
  // Collective.
  LossSum forward_backward(const LocalBatch& batch);

  // With records_max_logits() of the config, else empty: the largest visible attention score of
  // each head, [L, H], that this rank has met since the last forget_max_logits(); -inf where it met
  // none, as for heads of other Ulysses ranks.
  std::span<float> max_logits() { return max_logits_; }
  void forget_max_logits();

  // Bytes of one rank beside parameters: activations, attention workspace, logits.
  static int64_t activation_bytes(const RunConfig& config);

 private:
  int64_t n() const { return layout_.batch * rows_; }
  View<T, 2> layer_input(int64_t layer);
  int64_t head_group() const { return config_.model.tied_head ? 0 : config_.model.layers + 1; }
  void embed(const LocalBatch& batch);
  LossSum head(const LocalBatch& batch);
  void embed_backward(const LocalBatch& batch);
  void note_max_logits(int64_t layer);

  const RunConfig& config_;
  AttentionLayout layout_;
  int64_t rows_;  // T of this rank
  ShardedParameters<T> parameters_;
  ParallelAttention<T> attention_;
  DecoderLayer<T> layer_;
  Buffer<T> inputs_;         // [L + 1, N, E]: the input of every layer, and the output of the last
  Buffer<T> d_;              // [N, E]: gradient of the residual stream
  Buffer<T> norm_, d_norm_;  // [N, E]: of the final norm
  Buffer<float> rms_, logits_;
  Buffer<T> d_logits_;
  std::vector<float> max_logits_;  // [L, H]
};

}  // namespace odyssey
