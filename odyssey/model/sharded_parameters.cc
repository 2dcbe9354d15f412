// SPDX-License-Identifier: Apache-2.0
#include "odyssey/model/sharded_parameters.h"

#include <algorithm>

#include "odyssey/comm/all_gather.h"
#include "odyssey/comm/all_reduce.h"
#include "odyssey/comm/reduce_scatter.h"
#include "odyssey/kernels/elementwise.h"
#include "odyssey/sequence/placement.h"

namespace odyssey {
namespace {

std::vector<int64_t> shard_counts(int64_t size, int shards) {
  std::vector<int64_t> counts(shards);
  for (int s = 0; s < shards; ++s) counts[s] = part_size(size, shards, s);
  return counts;
}

int64_t largest_group(const std::vector<ParameterGroup>& groups) {
  int64_t largest = 0;
  for (const ParameterGroup& group : groups) largest = std::max(largest, group.size);
  return largest;
}

// Room for the gathered weights of one group; none where the shard itself serves.
template <class T>
int64_t gathered_elements(const std::vector<ParameterGroup>& groups, int64_t shards) {
  return shards == 1 && std::is_same_v<T, float> ? 0 : largest_group(groups);
}

}  // namespace

template <class T>
ShardedParameters<T>::ShardedParameters(std::vector<ParameterGroup> groups, uint64_t seed,
                                        Mesh& mesh)
    : groups_(std::move(groups)), mesh_(mesh) {
  const int shards = mesh.shard().size(), rank = mesh.shard().rank();
  int64_t mine = 0, largest_shard = 0, workspace = 0;
  for (const ParameterGroup& group : groups_) {
    counts_.push_back(shard_counts(group.size, shards));
    offsets_.push_back(mine);
    mine += counts_.back()[rank];
    largest_shard = std::max(largest_shard, counts_.back()[0]);
    workspace = std::max(workspace, reduce_scatter_workspace(counts_.back()));
  }
  start_gradients();
  weights_ = Buffer<float>(mine);
  gradients_ = Buffer<float>(mine);
  whole_weights_ = Buffer<T>(gathered_elements<T>(groups_, shards));
  whole_gradient_ = Buffer<float>(largest_group(groups_));
  summed_ = Buffer<float>(largest_shard);
  workspace_ = Buffer<float>(workspace);
  data_workspace_ = Buffer<float>(all_reduce_workspace(mesh.data().size(), mine));
  for (int64_t g = 0; g < static_cast<int64_t>(groups_.size()); ++g) {
    initialize(groups_[g], g, seed, part_begin(groups_[g].size, shards, rank), shard(weights_, g));
  }
}

template <class T>
int64_t ShardedParameters<T>::bytes_of_rank(const std::vector<ParameterGroup>& groups, int shards) {
  int64_t mine = 0, largest_shard = 0, workspace = 0;
  for (const ParameterGroup& group : groups) {
    const std::vector<int64_t> counts = shard_counts(group.size, shards);
    mine += counts[0];
    largest_shard = std::max(largest_shard, counts[0]);
    workspace = std::max(workspace, reduce_scatter_workspace(counts));
  }
  return (2 * mine + largest_shard + workspace + largest_group(groups)) * 4 +
         gathered_elements<T>(groups, shards) * static_cast<int64_t>(sizeof(T));
}

template <class T>
std::span<float> ShardedParameters<T>::shard(Buffer<float>& buffer, int64_t g) {
  return buffer.span().subspan(offsets_[g], counts_[g][mesh_.shard().rank()]);
}

template <class T>
int64_t ShardedParameters<T>::shard_begin(int64_t g) const {
  return part_begin(groups_[g].size, mesh_.shard().size(), mesh_.shard().rank());
}

template <class T>
std::vector<ShardRange> ShardedParameters<T>::ranges_of(std::string_view tensor_name) const {
  std::vector<ShardRange> ranges;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (!groups_[g].has(tensor_name)) continue;
    const ParameterTensor& tensor = groups_[g].tensor(tensor_name);
    const int64_t first = shard_begin(static_cast<int64_t>(g));
    const int64_t count = counts_[g][mesh_.shard().rank()];
    const int64_t begin = std::clamp<int64_t>(tensor.offset - first, 0, count);
    const int64_t end = std::clamp<int64_t>(tensor.offset + tensor.size() - first, 0, count);
    if (begin < end) ranges.push_back({offsets_[g] + begin, offsets_[g] + end});
  }
  return ranges;
}

template <class T>
std::span<const T> ShardedParameters<T>::gather(int64_t g) {
  // A rank alone has all of them, and in fp32 in the right type.
  if constexpr (std::is_same_v<T, float>) {
    if (mesh_.shard().size() == 1) return shard(weights_, g);
  }
  const int rank = mesh_.shard().rank();
  const std::span<T> whole = whole_weights_.span().first(groups_[g].size);
  const std::span<T> mine = whole.subspan(shard_begin(g), counts_[g][rank]);
  convert<float, T>(shard(weights_, g), mine);
  std::vector<int64_t> bytes(counts_[g]);
  for (int64_t& count : bytes) count *= static_cast<int64_t>(sizeof(T));
  all_gather(mesh_.shard(), std::as_bytes(mine), std::as_writable_bytes(whole), bytes);
  return whole;
}

template <class T>
void ShardedParameters<T>::start_gradients() {
  begun_.assign(groups_.size(), false);
}

template <class T>
std::span<float> ShardedParameters<T>::gradient_room(int64_t g) {
  in_place_ = mesh_.shard().size() == 1 && !begun_[g];
  return in_place_ ? shard(gradients_, g) : whole_gradient_.span().first(groups_[g].size);
}

template <class T>
std::span<float> ShardedParameters<T>::adding_room(int64_t g) {
  in_place_ = mesh_.shard().size() == 1;
  const std::span<float> room =
      in_place_ ? shard(gradients_, g) : whole_gradient_.span().first(groups_[g].size);
  if (!in_place_ || !begun_[g]) fill_zero(room);
  return room;
}

template <class T>
void ShardedParameters<T>::reduce(int64_t g) {
  const bool begun = begun_[g];
  begun_[g] = true;
  if (in_place_) return;
  const std::span<float> sum = shard(gradients_, g);
  const std::span<float> mine = begun ? summed_.span().first(sum.size()) : sum;
  reduce_scatter_sum(mesh_.shard(), whole_gradient_.span().first(groups_[g].size), mine, counts_[g],
                     workspace_.span());
  if (begun) add<float>(mine, sum);
}

template <class T>
void ShardedParameters<T>::reduce_over_data() {
  // For one copy of the model even the sum of one would be a pass over all gradients.
  if (mesh_.data().size() == 1) return;
  all_reduce_sum(mesh_.data(), gradients_.span(), data_workspace_.span());
}

template class ShardedParameters<float>;
template class ShardedParameters<bf16>;

}  // namespace odyssey
