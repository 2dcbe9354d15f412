// SPDX-License-Identifier: Apache-2.0
// The fp32 master weights and gradients, cut over the ranks that share one copy of the model (the
// axes fsdp, context and context_usp_ulysses, as in MaxText). Weights are gathered one group at a
// time, in the compute type, just before they are used; gradients of a group are summed over the
// ranks and scattered as soon as they are complete. So no rank ever holds more than one whole
// group. Source: Rajbhandari et al., "ZeRO", arXiv 1910.02054, stage 3.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "odyssey/base/buffer.h"
#include "odyssey/comm/mesh.h"
#include "odyssey/model/parameters.h"

namespace odyssey {

// Elements [begin, end) of a rank's shard.
struct ShardRange {
  int64_t begin = 0, end = 0;
};

template <class T>
class ShardedParameters {
 public:
  // Collective over nothing: every rank makes its own part from the seed.
  ShardedParameters(std::vector<ParameterGroup> groups, uint64_t seed, Mesh& mesh);

  const std::vector<ParameterGroup>& groups() const { return groups_; }
  int64_t total() const { return parameter_total(groups_); }

  // All elements of group g in type T, valid until the next gather. Collective over mesh.shard().
  std::span<const T> gather(int64_t g);
  // A new step: the sums of all groups begin again with the next reduce. No pass of zeros.
  void start_gradients();
  // Room for the whole gradient of group g, fp32, contents undefined, to be written before
  // reduce(g); shared by all groups. A rank alone gets the place of its sum where that has not
  // begun, so nothing is copied.
  std::span<float> gradient_room(int64_t g);
  // The same for gradients that touch few elements: to be added to. Holds zeros, or, for a rank
  // alone, the sum so far.
  std::span<float> adding_room(int64_t g);
  // Adds the sum over mesh.shard() of everyone's room of group g, the last one that was asked for,
  // to the gradient shards. Collective.
  void reduce(int64_t g);
  // Sums the gradient shards over the data axis, once per step. Collective over mesh.data().
  void reduce_over_data();

  // This rank's shard of all groups, one after the other. Gradients are defined once every group
  // was reduced.
  std::span<float> weights() { return weights_.span(); }
  std::span<float> gradients() { return gradients_.span(); }
  // Of those weights the part of group g, whose first element is element shard_begin(g) of the
  // group.
  std::span<float> weights_of(int64_t g) { return shard(weights_, g); }
  int64_t shard_begin(int64_t g) const;

  // Where the values of all tensors of that name lie in weights(), ascending and not empty.
  std::vector<ShardRange> ranges_of(std::string_view tensor_name) const;

  // Bytes of one rank for a model cut over `shards` ranks.
  static int64_t bytes_of_rank(const std::vector<ParameterGroup>& groups, int shards);

 private:
  std::span<float> shard(Buffer<float>& buffer, int64_t g);
  const std::vector<int64_t>& counts(int64_t g) const { return counts_[g]; }

  std::vector<ParameterGroup> groups_;
  Mesh& mesh_;
  std::vector<std::vector<int64_t>> counts_;  // of each group: elements of each shard
  std::vector<int64_t> offsets_;              // of each group within the shard buffers
  std::vector<bool> begun_;                   // of each group: whether its shard holds a sum
  bool in_place_ = false;                     // the last room is the shard itself
  Buffer<float> weights_, gradients_, whole_gradient_, summed_, workspace_, data_workspace_;
  Buffer<T> whole_weights_;
};

}  // namespace odyssey
