// SPDX-License-Identifier: Apache-2.0
// One decoder layer, forward and backward. N = B * T rows of this rank; matrices are [outputs,
// inputs]. Backward recomputes the forward pass from the layer's input, so a layer leaves nothing
// behind but that input (full recompute).
#pragma once
#include <span>

#include "odyssey/base/buffer.h"
#include "odyssey/base/view.h"
#include "odyssey/config/run_config.h"
#include "odyssey/context/parallel_attention.h"
#include "odyssey/kernels/rope.h"
#include "odyssey/model/parameters.h"

namespace odyssey {

template <class T>
class DecoderLayer {
 public:
  // batch (B) and rows (T) of this rank. attention is shared by all layers and outlives this
  // object.
  DecoderLayer(const ModelConfig& config, int64_t batch, int64_t rows,
               ParallelAttention<T>& attention);

  // Which layer of the model, counted from 0, the calls that follow are: its mask and its RoPE.
  void use_layer(int64_t layer);

  // y = layer(x). x, y: [N, E], not the same; weights: the gathered group of the layer; positions:
  // [N] for RoPE.
  void forward(const ParameterGroup& group, std::span<const T> weights,
               std::span<const int32_t> positions, View<const T, 2> x, View<T, 2> y);
  // d <- gradient of the layer's input, given d = gradient of its output [N, E] and its input x.
  // Writes the whole group's gradient.
  void backward(const ParameterGroup& group, std::span<const T> weights,
                std::span<const int32_t> positions, View<const T, 2> x, View<T, 2> d,
                std::span<float> gradient);

  static int64_t bytes(const ModelConfig& config, int64_t batch, int64_t rows);
  // Scratch that the matrix products keep, for n tokens.
  static int64_t product_scratch_bytes(const ModelConfig& config, int64_t n);

 private:
  void use_sinks(const ParameterGroup& group, std::span<const T> weights);
  void forward_attention(const ParameterGroup& group, std::span<const T> weights,
                         std::span<const int32_t> positions, View<const T, 2> x);
  void forward_mlp(const ParameterGroup& group, std::span<const T> weights, View<const T, 2> x);
  void forward_mlp_output(const ParameterGroup& group, std::span<const T> weights, View<T, 2> y);
  void backward_mlp(const ParameterGroup& group, std::span<const T> weights, View<T, 2> d,
                    std::span<float> gradient);
  View<const T, 2> backward_output_norm(const ParameterGroup& group, std::span<const T> weights,
                                        std::string_view name, Buffer<T>& output,
                                        std::span<const float> rms, View<const T, 2> d,
                                        std::span<float> gradient);
  void backward_sinks(const ParameterGroup& group, std::span<float> gradient) const;
  void backward_attention(const ParameterGroup& group, std::span<const T> weights,
                          std::span<const int32_t> positions, View<const T, 2> x, View<T, 2> d,
                          std::span<float> gradient);

  int64_t n() const { return batch_ * rows_; }
  int64_t qkv_heads() const { return config_.query_heads + 2 * config_.kv_heads; }
  View<T, 2> matrix(Buffer<T>& buffer, int64_t columns) { return {buffer.data(), {n(), columns}}; }
  NormRope<T> norm_rope(const ParameterGroup& group, std::span<const T> weights,
                        std::string_view name, std::span<const int32_t> positions) const;
  // The heads [begin, end) of a [N, (H + 2K) D] buffer, by row and by batch.
  View<T, 3> heads(Buffer<T>& qkv, int64_t begin, int64_t end);
  View<T, 4> batched_heads(Buffer<T>& qkv, int64_t begin, int64_t end);

  const ModelConfig& config_;
  int64_t batch_, rows_;
  ParallelAttention<T>& attention_;
  std::vector<float> frequencies_, local_frequencies_;  // RoPE's, of all layers, of sliding ones
  std::span<const float> frequencies_in_use_;
  // Results of the forward pass that the backward pass needs, of one layer at a time.
  // projected_ and mlp_output_: what the norms behind attention and MLP see, where there are such.
  Buffer<T> projected_, mlp_output_;
  Buffer<T> norm1_, qkv_, qkv_raw_, attention_out_, middle_, norm2_, gate_up_, activated_;
  Buffer<float> rms1_, rms2_, query_rms_, key_rms_, projected_rms_, mlp_output_rms_;
  // Gradients; d_output_ before one of those two norms.
  Buffer<T> d_output_, d_norm_, d_qkv_, d_attention_, d_activated_;
};

}  // namespace odyssey
