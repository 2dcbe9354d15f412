// SPDX-License-Identifier: Apache-2.0
// The fp32 master weights and gradients, cut over the ranks that share one copy of the model (the
// axes fsdp, context and context_usp_ulysses, as in MaxText). Weights are gathered one group at a
// time, in the compute type, just before they are used; gradients of a group are summed over the
// ranks and scattered as soon as they are complete. So no rank ever holds more than one whole
// group. Source: Rajbhandari et al., "ZeRO", arXiv 1910.02054, stage 3.
#pragma once
#include <span>
#include <vector>

#include "odyssey/base/buffer.h"
#include "odyssey/comm/mesh.h"
#include "odyssey/model/parameters.h"

namespace odyssey {

template <class T>
class ShardedParameters {
 public:
  // Collective over nothing: every rank makes its own part from the seed.
  ShardedParameters(std::vector<ParameterGroup> groups, uint64_t seed, Mesh& mesh);

  const std::vector<ParameterGroup>& groups() const { return groups_; }
  int64_t total() const { return parameter_total(groups_); }

  // All elements of group g in type T, valid until the next gather. Collective over mesh.shard().
  std::span<const T> gather(int64_t g);
  // Room for the whole gradient of group g, fp32, contents undefined; shared by all groups.
  std::span<float> gradient_room(int64_t g);
  // Adds the sum over mesh.shard() of everyone's gradient_room(g) to the gradient shards.
  // Collective.
  void reduce(int64_t g);
  // Sums the gradient shards over the data axis, once per step. Collective over mesh.data().
  void reduce_over_data();

  // This rank's shard of all groups, one after the other.
  std::span<float> weights() { return weights_.span(); }
  std::span<float> gradients() { return gradients_.span(); }

  // Bytes of one rank for a model cut over `shards` ranks.
  static int64_t bytes_of_rank(const std::vector<ParameterGroup>& groups, int shards);

 private:
  std::span<float> shard(Buffer<float>& buffer, int64_t g);
  const std::vector<int64_t>& counts(int64_t g) const { return counts_[g]; }

  std::vector<ParameterGroup> groups_;
  Mesh& mesh_;
  std::vector<std::vector<int64_t>> counts_;  // of each group: elements of each shard
  std::vector<int64_t> offsets_;              // of each group within the shard buffers
  Buffer<float> weights_, gradients_, whole_gradient_, summed_, workspace_, data_workspace_;
  Buffer<T> whole_weights_;
};

}  // namespace odyssey
