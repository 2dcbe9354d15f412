// SPDX-License-Identifier: Apache-2.0
#include "odyssey/model/layer.h"

#include <algorithm>

#include "odyssey/kernels/activation.h"
#include "odyssey/kernels/elementwise.h"
#include "odyssey/kernels/matmul.h"
#include "odyssey/kernels/rms_norm.h"
#include "odyssey/kernels/rope.h"

namespace odyssey {
namespace {

// Gradients of vectors are added to; those of matrices are overwritten.
std::span<float> zeroed_vector(const ParameterGroup& group, std::span<float> gradient,
                               std::string_view name) {
  const std::span<float> values = vector_of(group, gradient, name);
  fill_zero(values);
  return values;
}

GatedKind gated_kind(const ModelConfig& config) {
  return config.activation == Activation::kSilu ? GatedKind::kSilu : GatedKind::kGelu;
}

RmsNormOptions norm_options(const ModelConfig& config) {
  return {config.norm_epsilon, config.norm_adds_one};
}

}  // namespace

template <class T>
DecoderLayer<T>::DecoderLayer(const ModelConfig& config, int64_t batch, int64_t rows,
                              ParallelAttention<T>& attention)
    : config_(config), batch_(batch), rows_(rows), attention_(attention) {
  const RopeScaling& scaling = config.rope_scaling;
  frequencies_ = rope_frequencies(config.head_size, config.rope_theta,
                                  {scaling.factor, scaling.low_frequency_factor,
                                   scaling.high_frequency_factor, scaling.original_length});
  local_frequencies_ = config.local_rope_theta == 0
                           ? frequencies_
                           : rope_frequencies(config.head_size, config.local_rope_theta);
  use_layer(0);
  const int64_t qkv = qkv_heads() * config.head_size;
  const int64_t query = config.query_heads * config.head_size;
  for (Buffer<T>* buffer : {&norm1_, &norm2_, &middle_, &d_norm_}) {
    *buffer = Buffer<T>(n() * config.embedding);
  }
  for (Buffer<T>* buffer : {&qkv_, &d_qkv_}) *buffer = Buffer<T>(n() * qkv);
  for (Buffer<T>* buffer : {&attention_out_, &d_attention_}) *buffer = Buffer<T>(n() * query);
  gate_up_ = Buffer<T>(n() * 2 * config.mlp);
  for (Buffer<T>* buffer : {&activated_, &d_activated_}) *buffer = Buffer<T>(n() * config.mlp);
  rms1_ = Buffer<float>(n());
  rms2_ = Buffer<float>(n());
  if (config.qk_norm) {
    qkv_raw_ = Buffer<T>(n() * qkv);
    query_rms_ = Buffer<float>(n() * config.query_heads);
    key_rms_ = Buffer<float>(n() * config.kv_heads);
  }
  if (config.attention_output_norm) {
    projected_ = Buffer<T>(n() * config.embedding);
    projected_rms_ = Buffer<float>(n());
  }
  if (config.mlp_output_norm) {
    mlp_output_ = Buffer<T>(n() * config.embedding);
    mlp_output_rms_ = Buffer<float>(n());
  }
  if (config.attention_output_norm || config.mlp_output_norm) {
    d_output_ = Buffer<T>(n() * config.embedding);
  }
}

template <class T>
void DecoderLayer<T>::use_layer(int64_t layer) {
  const MaskRule& mask = config_.masks[layer % static_cast<int64_t>(config_.masks.size())];
  frequencies_in_use_ = mask.kind == MaskKind::kLocalSliding ? local_frequencies_ : frequencies_;
  attention_.use_mask(mask_index(config_, layer));
}

template <class T>
int64_t DecoderLayer<T>::bytes(const ModelConfig& c, int64_t batch, int64_t rows) {
  const int64_t n = batch * rows;
  const int64_t qkv = (c.query_heads + 2 * c.kv_heads) * c.head_size;
  const int64_t norms = (c.attention_output_norm ? 1 : 0) + (c.mlp_output_norm ? 1 : 0);
  const int64_t elements = (4 + norms + (norms > 0 ? 1 : 0)) * c.embedding +
                           (c.qk_norm ? 3 : 2) * qkv + 2 * c.query_heads * c.head_size + 4 * c.mlp;
  const int64_t floats = 2 + norms + (c.qk_norm ? c.query_heads + c.kv_heads : 0);
  return n * (elements * static_cast<int64_t>(sizeof(T)) + floats * 4);
}

template <class T>
int64_t DecoderLayer<T>::product_scratch_bytes(const ModelConfig& c, int64_t n) {
  const int64_t query = c.query_heads * c.head_size, key = c.kv_heads * c.head_size;
  return std::max({linear_scratch_bytes<T>(n, c.embedding, query + 2 * key),
                   linear_scratch_bytes<T>(n, query, c.embedding),
                   linear_scratch_bytes<T>(n, c.embedding, 2 * c.mlp),
                   linear_scratch_bytes<T>(n, c.mlp, c.embedding)});
}

template <class T>
View<T, 3> DecoderLayer<T>::heads(Buffer<T>& qkv, int64_t begin, int64_t end) {
  const View<T, 3> all(qkv.data(), {n(), qkv_heads(), config_.head_size});
  return all.slice(1, begin, end);
}

template <class T>
View<T, 4> DecoderLayer<T>::batched_heads(Buffer<T>& qkv, int64_t begin, int64_t end) {
  const View<T, 4> all(qkv.data(), {batch_, rows_, qkv_heads(), config_.head_size});
  return all.slice(2, begin, end);
}

template <class T>
NormRope<T> DecoderLayer<T>::norm_rope(const ParameterGroup& group, std::span<const T> weights,
                                       std::string_view name,
                                       std::span<const int32_t> positions) const {
  return {vector_of(group, weights, name), norm_options(config_), positions, frequencies_in_use_};
}

template <class T>
void DecoderLayer<T>::use_sinks(const ParameterGroup& group, std::span<const T> weights) {
  if (!config_.attention_sink) return;
  std::vector<float> sinks(config_.query_heads);
  convert<T, float>(vector_of(group, weights, kSinks), sinks);
  attention_.use_sinks(sinks);
}

// Each rank has the part of its heads and of the rows of its ring block.
template <class T>
void DecoderLayer<T>::backward_sinks(const ParameterGroup& group, std::span<float> gradient) const {
  if (!config_.attention_sink) return;
  const std::vector<float> mine = attention_.dsinks();
  const std::span<float> all = zeroed_vector(group, gradient, kSinks);
  std::copy(mine.begin(), mine.end(), all.begin() + attention_.first_head());
}

// middle = attention(norm(x)) W_o^T, or the norm of that; forward_mlp adds x.
template <class T>
void DecoderLayer<T>::forward_attention(const ParameterGroup& group, std::span<const T> weights,
                                        std::span<const int32_t> positions, View<const T, 2> x) {
  const int64_t H = config_.query_heads, K = config_.kv_heads, D = config_.head_size;
  const View<T, 2> norm = matrix(norm1_, config_.embedding);
  rms_norm<T>(x, vector_of(group, weights, "input_norm"), norm_options(config_), norm,
              rms1_.span());
  Buffer<T>& projected = config_.qk_norm ? qkv_raw_ : qkv_;
  const View<T, 2> qkv = matrix(projected, qkv_heads() * D);
  linear<T>(norm, matrix_of(group, weights, "query_key_value"), qkv);
  if (config_.qkv_bias) add_bias<T>(vector_of(group, weights, "query_key_value_bias"), qkv);
  if (config_.qk_norm) {
    rms_norm_rope<T>(heads(qkv_raw_, 0, H), norm_rope(group, weights, "query_norm", positions),
                     heads(qkv_, 0, H), query_rms_.span());
    rms_norm_rope<T>(heads(qkv_raw_, H, H + K), norm_rope(group, weights, "key_norm", positions),
                     heads(qkv_, H, H + K), key_rms_.span());
  } else {
    rope<T>(heads(qkv_, 0, H + K), positions, frequencies_in_use_, /*inverse=*/false);
  }
  use_sinks(group, weights);
  attention_.forward(batched_heads(qkv_, 0, H), batched_heads(qkv_, H, H + K),
                     batched_heads(projected, H + K, H + 2 * K),
                     View<T, 4>(attention_out_.data(), {batch_, rows_, H, D}));
  Buffer<T>& output = config_.attention_output_norm ? projected_ : middle_;
  linear<T>(matrix(attention_out_, H * D), matrix_of(group, weights, "attention_output"),
            matrix(output, config_.embedding));
  if (config_.attention_output_norm) {
    rms_norm<T>(matrix(projected_, config_.embedding),
                vector_of(group, weights, "attention_output_norm"), norm_options(config_),
                matrix(middle_, config_.embedding), projected_rms_.span());
  }
}

// middle += x; activated = f(norm(middle) W_gate^T) * (norm(middle) W_up^T)
template <class T>
void DecoderLayer<T>::forward_mlp(const ParameterGroup& group, std::span<const T> weights,
                                  View<const T, 2> x) {
  const View<T, 2> norm = matrix(norm2_, config_.embedding);
  add_rms_norm<T>(x, matrix(middle_, config_.embedding),
                  vector_of(group, weights, "post_attention_norm"), norm_options(config_), norm,
                  rms2_.span());
  linear<T>(norm, matrix_of(group, weights, "gate_up"), matrix(gate_up_, 2 * config_.mlp));
  gated_activation<T>(gated_kind(config_), matrix(gate_up_, 2 * config_.mlp),
                      matrix(activated_, config_.mlp));
}

// y = activated W_down^T, or the norm of that
template <class T>
void DecoderLayer<T>::forward_mlp_output(const ParameterGroup& group, std::span<const T> weights,
                                         View<T, 2> y) {
  const View<T, 2> output = config_.mlp_output_norm ? matrix(mlp_output_, config_.embedding) : y;
  linear<T>(matrix(activated_, config_.mlp), matrix_of(group, weights, "down"), output);
  if (config_.mlp_output_norm) {
    rms_norm<T>(output, vector_of(group, weights, "mlp_output_norm"), norm_options(config_), y,
                mlp_output_rms_.span());
  }
}

// The gradient of what such a norm saw, `output`, given that of what it gave, d.
template <class T>
View<const T, 2> DecoderLayer<T>::backward_output_norm(
    const ParameterGroup& group, std::span<const T> weights, std::string_view name,
    Buffer<T>& output, std::span<const float> rms, View<const T, 2> d, std::span<float> gradient) {
  const View<T, 2> d_output = matrix(d_output_, config_.embedding);
  rms_norm_backward<T>(d, matrix(output, config_.embedding), vector_of(group, weights, name),
                       norm_options(config_), rms, /*accumulate=*/false, d_output,
                       zeroed_vector(group, gradient, name));
  return d_output;
}

template <class T>
void DecoderLayer<T>::forward(const ParameterGroup& group, std::span<const T> weights,
                              std::span<const int32_t> positions, View<const T, 2> x,
                              View<T, 2> y) {
  forward_attention(group, weights, positions, x);
  forward_mlp(group, weights, x);
  forward_mlp_output(group, weights, y);
  add<T>(middle_.span(), y.span());
}

template <class T>
void DecoderLayer<T>::backward(const ParameterGroup& group, std::span<const T> weights,
                               std::span<const int32_t> positions, View<const T, 2> x, View<T, 2> d,
                               std::span<float> gradient) {
  forward_attention(group, weights, positions, x);
  forward_mlp(group, weights, x);
  // The norm behind the MLP needs what it saw; what it gives may lie where its gradient will.
  if (config_.mlp_output_norm) {
    forward_mlp_output(group, weights, matrix(d_output_, config_.embedding));
  }
  backward_mlp(group, weights, d, gradient);
  backward_attention(group, weights, positions, x, d, gradient);
}

template <class T>
void DecoderLayer<T>::backward_mlp(const ParameterGroup& group, std::span<const T> weights,
                                   View<T, 2> d, std::span<float> gradient) {
  const View<T, 2> d_activated = matrix(d_activated_, config_.mlp);
  const View<T, 2> gate_up = matrix(gate_up_, 2 * config_.mlp);
  const View<T, 2> d_norm = matrix(d_norm_, config_.embedding);
  // forward: y = middle + activated W_down^T, or + the norm of that
  const View<const T, 2> d_down =
      config_.mlp_output_norm ? backward_output_norm(group, weights, "mlp_output_norm", mlp_output_,
                                                     mlp_output_rms_.span(), d, gradient)
                              : d;
  linear_backward_weight<T>(d_down, matrix(activated_, config_.mlp),
                            matrix_of(group, gradient, "down"), /*accumulate=*/false);
  linear_backward_input<T>(d_down, matrix_of(group, weights, "down"), d_activated,
                           /*accumulate=*/false);
  // forward: activated = f(gate) * up. Its gradient takes the place of gate and up.
  gated_activation_backward<T>(gated_kind(config_), d_activated, gate_up, gate_up);
  // forward: gate_up = norm W_gate_up^T
  linear_backward_weight<T>(gate_up, matrix(norm2_, config_.embedding),
                            matrix_of(group, gradient, "gate_up"), /*accumulate=*/false);
  linear_backward_input<T>(gate_up, matrix_of(group, weights, "gate_up"), d_norm,
                           /*accumulate=*/false);
  // forward: norm = rms_norm(middle); middle also goes straight on
  rms_norm_backward<T>(d_norm, matrix(middle_, config_.embedding),
                       vector_of(group, weights, "post_attention_norm"), norm_options(config_),
                       rms2_.span(), /*accumulate=*/true, d,
                       zeroed_vector(group, gradient, "post_attention_norm"));
}

template <class T>
void DecoderLayer<T>::backward_attention(const ParameterGroup& group, std::span<const T> weights,
                                         std::span<const int32_t> positions, View<const T, 2> x,
                                         View<T, 2> d, std::span<float> gradient) {
  const int64_t H = config_.query_heads, K = config_.kv_heads, D = config_.head_size;
  const View<T, 2> d_attention = matrix(d_attention_, H * D);
  const View<T, 2> d_qkv = matrix(d_qkv_, qkv_heads() * D);
  const View<T, 2> d_norm = matrix(d_norm_, config_.embedding);
  // forward: middle = x + attention_out W_o^T, or + the norm of that
  const View<const T, 2> d_projected =
      config_.attention_output_norm
          ? backward_output_norm(group, weights, "attention_output_norm", projected_,
                                 projected_rms_.span(), d, gradient)
          : d;
  linear_backward_weight<T>(d_projected, matrix(attention_out_, H * D),
                            matrix_of(group, gradient, "attention_output"), /*accumulate=*/false);
  linear_backward_input<T>(d_projected, matrix_of(group, weights, "attention_output"), d_attention,
                           /*accumulate=*/false);
  attention_.backward(View<const T, 4>(d_attention_.data(), {batch_, rows_, H, D}),
                      batched_heads(d_qkv_, 0, H), batched_heads(d_qkv_, H, H + K),
                      batched_heads(d_qkv_, H + K, H + 2 * K));
  backward_sinks(group, gradient);
  // forward: rope turns q and k; turning back is the gradient
  if (config_.qk_norm) {
    rms_norm_rope_backward<T>(heads(d_qkv_, 0, H), heads(qkv_raw_, 0, H),
                              norm_rope(group, weights, "query_norm", positions), query_rms_.span(),
                              zeroed_vector(group, gradient, "query_norm"));
    rms_norm_rope_backward<T>(heads(d_qkv_, H, H + K), heads(qkv_raw_, H, H + K),
                              norm_rope(group, weights, "key_norm", positions), key_rms_.span(),
                              zeroed_vector(group, gradient, "key_norm"));
  } else {
    rope<T>(heads(d_qkv_, 0, H + K), positions, frequencies_in_use_, /*inverse=*/true);
  }
  if (config_.qkv_bias) {
    bias_backward<T>(d_qkv, zeroed_vector(group, gradient, "query_key_value_bias"));
  }
  // forward: qkv = norm W_qkv^T
  linear_backward_weight<T>(d_qkv, matrix(norm1_, config_.embedding),
                            matrix_of(group, gradient, "query_key_value"), /*accumulate=*/false);
  linear_backward_input<T>(d_qkv, matrix_of(group, weights, "query_key_value"), d_norm,
                           /*accumulate=*/false);
  // forward: norm = rms_norm(x); x also goes straight on
  rms_norm_backward<T>(d_norm, x, vector_of(group, weights, "input_norm"), norm_options(config_),
                       rms1_.span(), /*accumulate=*/true, d,
                       zeroed_vector(group, gradient, "input_norm"));
}

template class DecoderLayer<float>;
template class DecoderLayer<bf16>;

}  // namespace odyssey
