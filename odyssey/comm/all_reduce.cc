// SPDX-License-Identifier: Apache-2.0
#include "odyssey/comm/all_reduce.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "odyssey/comm/all_gather.h"
#include "odyssey/comm/broadcast.h"
#include "odyssey/comm/parts.h"
#include "odyssey/comm/reduce_scatter.h"

namespace odyssey {
namespace {

// Combines to rank 0 along a binomial tree, then hands the result back. What arrives lies on the
// stack, so longer arrays go in slices.
template <class T, class Combine>
void tree_all_reduce(Group& group, std::span<T> values, const Combine& combine) {
  constexpr size_t kSlice = 1024;
  const int rank = group.rank(), size = group.size();
  std::array<T, kSlice> arrived;
  for (size_t begin = 0; begin < values.size(); begin += kSlice) {
    const std::span<T> slice = values.subspan(begin, std::min(kSlice, values.size() - begin));
    const std::span<T> incoming(arrived.data(), slice.size());
    for (int distance = 1; distance < size; distance *= 2) {
      if ((rank & distance) != 0) {
        RequestPtr request = group.send(std::as_bytes(slice), rank - distance, Tag::kAllReduce);
        group.wait(request);
        break;
      }
      if (rank + distance >= size) continue;
      RequestPtr request =
          group.receive(std::as_writable_bytes(incoming), rank + distance, Tag::kAllReduce);
      group.wait(request);
      for (size_t i = 0; i < slice.size(); ++i) slice[i] = combine(slice[i], incoming[i]);
    }
    broadcast(group, std::as_writable_bytes(slice), 0);
  }
}

// As even as can be; the first parts are the larger ones.
std::vector<int64_t> even_parts(int ranks, int64_t size) {
  std::vector<int64_t> counts(static_cast<size_t>(ranks), size / ranks);
  for (int64_t rank = 0; rank < size % ranks; ++rank) ++counts[static_cast<size_t>(rank)];
  return counts;
}

}  // namespace

void all_reduce_sum(Group& group, std::span<float> values) {
  tree_all_reduce(group, values, [](float a, float b) { return a + b; });
}

void all_reduce_sum(Group& group, std::span<double> values) {
  tree_all_reduce(group, values, [](double a, double b) { return a + b; });
}

void all_reduce_max(Group& group, std::span<float> values) {
  tree_all_reduce(group, values, [](float a, float b) { return std::isnan(a) || a > b ? a : b; });
}

void all_reduce_sum(Group& group, std::span<float> values, std::span<float> workspace) {
  std::vector<int64_t> counts = even_parts(group.size(), static_cast<int64_t>(values.size()));
  const std::vector<int64_t> offsets = part_offsets(counts);
  const std::span<float> mine = part_of(values, offsets, group.rank());
  reduce_scatter_sum(group, values, mine, counts, workspace);
  for (int64_t& count : counts) count *= static_cast<int64_t>(sizeof(float));
  all_gather(group, std::as_bytes(mine), std::as_writable_bytes(values), counts);
}

int64_t all_reduce_workspace(int ranks, int64_t size) {
  return reduce_scatter_workspace(even_parts(ranks, size));
}

}  // namespace odyssey
