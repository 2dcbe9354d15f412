// SPDX-License-Identifier: Apache-2.0
#include "odyssey/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "odyssey/kernels/cross_entropy.h"
#include "odyssey/kernels/elementwise.h"
#include "odyssey/kernels/embedding.h"
#include "odyssey/kernels/matmul.h"
#include "odyssey/kernels/rms_norm.h"
#include "odyssey/kernels/soft_cap.h"
#include "odyssey/schedule/run_layout.h"

namespace odyssey {
namespace {

// fp32 logits of one chunk: small beside the weights of the head, large enough to keep products
// busy.
constexpr int64_t kLogitBytes = int64_t{64} << 20;

// Rows of one chunk of the head, for N rows in all.
int64_t chunk_rows(const RunConfig& config, int64_t n) {
  const int64_t tiles = std::max<int64_t>(config.vocabulary_tiles, 1);
  const int64_t by_tiles = (n + tiles - 1) / tiles;
  const int64_t by_memory = std::max<int64_t>(1, kLogitBytes / (4 * config.model.vocabulary));
  return std::max<int64_t>(1, std::min(by_tiles, by_memory));
}

std::vector<MaskRule> distinct_masks(const ModelConfig& model) {
  std::vector<MaskRule> masks;
  for (const MaskShare& share : mask_shares(model)) masks.push_back(share.mask);
  return masks;
}

ParallelAttentionOptions attention_options(const RunConfig& config) {
  const ModelConfig& model = config.model;
  ParallelAttentionOptions options;
  options.scale = model.attention_scale != 0 ? model.attention_scale
                                             : 1 / std::sqrt(static_cast<float>(model.head_size));
  options.soft_cap = model.attention_soft_cap;
  options.record_max_logits = config.records_max_logits();
  options.masks = distinct_masks(model);
  return options;
}

float embedding_scale(const ModelConfig& model) {
  return model.scale_embedding ? std::sqrt(static_cast<float>(model.embedding)) : 1.0f;
}

}  // namespace

int64_t batch_rows_of_slice(const RunConfig& config) {
  return config.data.global_batch_rows / (config.parallel.data * config.parallel.fsdp);
}

AttentionLayout attention_layout(const RunConfig& config, int64_t batch) {
  AttentionLayout layout = run_layout(config, batch);
  // Text without packing is padded.
  layout.segmented = config.data.type == DatasetType::kText ||
                     (config.data.packing && config.data.max_segments_per_row >= 2);
  return layout;
}

template <class T>
Decoder<T>::Decoder(const RunConfig& config, Mesh& mesh)
    : config_(config),
      layout_(attention_layout(config, batch_rows_of_slice(config))),
      rows_(layout_.placement.local_count(mesh.ring_index(), mesh.ulysses_index())),
      parameters_(parameter_groups(config.model), config.init_seed, mesh),
      attention_(layout_, attention_options(config), mesh.ring(), mesh.ulysses()),
      layer_(config.model, layout_.batch, rows_, attention_),
      inputs_((config.model.layers + 1) * n() * config.model.embedding),
      d_(n() * config.model.embedding),
      norm_(n() * config.model.embedding),
      d_norm_(n() * config.model.embedding),
      rms_(n()),
      logits_(chunk_rows(config, n()) * config.model.vocabulary),
      d_logits_(chunk_rows(config, n()) * config.model.vocabulary),
      max_logits_(config.records_max_logits() ? config.model.layers * config.model.query_heads
                                              : 0) {
  forget_max_logits();
}

template <class T>
int64_t Decoder<T>::activation_bytes(const RunConfig& config) {
  const int64_t batch = batch_rows_of_slice(config);
  const AttentionLayout layout = attention_layout(config, batch);
  const int64_t rows = layout.placement.most_local_rows(), n = batch * rows;
  const int64_t element = sizeof(T);
  const int64_t stream = (config.model.layers + 4) * n * config.model.embedding * element + 4 * n;
  const int64_t logits = chunk_rows(config, n) * config.model.vocabulary * (4 + element);
  const int64_t products =
      std::max(linear_scratch_bytes<T>(chunk_rows(config, n), config.model.embedding,
                                       config.model.vocabulary),
               DecoderLayer<T>::product_scratch_bytes(config.model, n));
  return stream + logits + products + DecoderLayer<T>::bytes(config.model, batch, rows) +
         ParallelAttention<T>::workspace_bytes(layout, distinct_masks(config.model));
}

template <class T>
View<T, 2> Decoder<T>::layer_input(int64_t layer) {
  const int64_t size = n() * config_.model.embedding;
  return {inputs_.data() + layer * size, {n(), config_.model.embedding}};
}

template <class T>
void Decoder<T>::embed(const LocalBatch& batch) {
  const std::span<const T> weights = parameters_.gather(0);
  embedding<T>(matrix_of(parameters_.groups()[0], weights, "embedding"), batch.tokens,
               embedding_scale(config_.model), layer_input(0));
}

template <class T>
void Decoder<T>::embed_backward(const LocalBatch& batch) {
  const std::span<float> gradient = parameters_.adding_room(0);
  embedding_backward<T>(View<const T, 2>(d_.data(), {n(), config_.model.embedding}), batch.tokens,
                        embedding_scale(config_.model),
                        matrix_of(parameters_.groups()[0], gradient, "embedding"));
  parameters_.reduce(0);
}

// Final norm, logits, loss, and their gradients down to d_, chunk by chunk.
template <class T>
LossSum Decoder<T>::head(const LocalBatch& batch) {
  const ModelConfig& model = config_.model;
  const ParameterGroup& group = parameters_.groups()[head_group()];
  const std::string_view head_name = model.tied_head ? "embedding" : "head";
  const RmsNormOptions options{model.norm_epsilon, model.norm_adds_one};
  const std::span<const T> weights = parameters_.gather(head_group());
  const std::span<float> gradient = parameters_.gradient_room(head_group());
  const std::span<const T> norm_weight = vector_of(group, weights, "final_norm");
  const View<const T, 2> head_weight = matrix_of(group, weights, head_name);
  const View<float, 2> d_head = matrix_of(group, gradient, head_name);
  fill_zero(n() == 0 ? gradient : vector_of(group, gradient, "final_norm"));

  const View<T, 2> x = layer_input(model.layers);
  const View<T, 2> norm(norm_.data(), x.extents()), d_norm(d_norm_.data(), x.extents());
  rms_norm<T>(x, norm_weight, options, norm, rms_.span());
  LossSum sum;
  const int64_t step = chunk_rows(config_, n());
  for (int64_t begin = 0; begin < n(); begin += step) {
    const int64_t count = std::min(step, n() - begin);
    const View<float, 2> logits(logits_.data(), {count, model.vocabulary});
    const View<T, 2> d_logits(d_logits_.data(), {count, model.vocabulary});
    const View<const T, 2> rows = norm.slice(0, begin, begin + count);
    linear_to_fp32<T>(rows, head_weight, logits);
    if (model.logit_soft_cap != 0) soft_cap(model.logit_soft_cap, logits);
    const CrossEntropySum part =
        cross_entropy<T>(logits, std::span(batch.targets).subspan(begin, count),
                         std::span(batch.weights).subspan(begin, count), d_logits);
    if (model.logit_soft_cap != 0) soft_cap_backward<T>(model.logit_soft_cap, logits, d_logits);
    sum.loss += part.loss;
    sum.weight += part.weight;
    // forward: logits = norm W^T
    linear_backward_weight<T>(d_logits, rows, d_head, /*accumulate=*/begin > 0);
    linear_backward_input<T>(d_logits, head_weight, d_norm.slice(0, begin, begin + count),
                             /*accumulate=*/false);
  }
  rms_norm_backward<T>(d_norm, x, norm_weight, options, rms_.span(), /*accumulate=*/false,
                       View<T, 2>(d_.data(), x.extents()),
                       vector_of(group, gradient, "final_norm"));
  parameters_.reduce(head_group());
  return sum;
}

template <class T>
void Decoder<T>::forget_max_logits() {
  std::fill(max_logits_.begin(), max_logits_.end(), -std::numeric_limits<float>::infinity());
}

template <class T>
void Decoder<T>::note_max_logits(int64_t layer) {
  const std::vector<float> met = attention_.max_logits();
  float* most = max_logits_.data() + layer * config_.model.query_heads + attention_.first_head();
  for (size_t h = 0; h < met.size(); ++h) most[h] = std::max(most[h], met[h]);
}

template <class T>
LossSum Decoder<T>::forward_backward(const LocalBatch& batch) {
  const std::vector<ParameterGroup>& groups = parameters_.groups();
  attention_.set_segments(batch.segments);
  embed(batch);
  for (int64_t layer = 0; layer < config_.model.layers; ++layer) {
    layer_.use_layer(layer);
    layer_.forward(groups[layer + 1], parameters_.gather(layer + 1), batch.positions,
                   layer_input(layer), layer_input(layer + 1));
    if (config_.records_max_logits()) note_max_logits(layer);
  }
  const LossSum sum = head(batch);
  for (int64_t layer = config_.model.layers - 1; layer >= 0; --layer) {
    layer_.use_layer(layer);
    layer_.backward(groups[layer + 1], parameters_.gather(layer + 1), batch.positions,
                    layer_input(layer), View<T, 2>(d_.data(), {n(), config_.model.embedding}),
                    parameters_.gradient_room(layer + 1));
    parameters_.reduce(layer + 1);
  }
  embed_backward(batch);
  return sum;
}

template class Decoder<float>;
template class Decoder<bf16>;

}  // namespace odyssey
