// SPDX-License-Identifier: Apache-2.0
// Memory cut into one part for each rank, in rank order without gaps: the form of every uneven
// collective.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "odyssey/base/error.h"

namespace odyssey {

// Where each part begins, and the total as the last of counts.size() + 1 values.
inline std::vector<int64_t> part_offsets(std::span<const int64_t> counts) {
  std::vector<int64_t> offsets(counts.size() + 1, 0);
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    ODYSSEY_CHECK(counts[rank] >= 0, "part {} has {} elements", rank, counts[rank]);
    offsets[rank + 1] = offsets[rank] + counts[rank];
  }
  return offsets;
}

// The part of one rank.
template <class T>
std::span<T> part_of(std::span<T> all, std::span<const int64_t> offsets, int rank) {
  const auto begin = static_cast<size_t>(offsets[static_cast<size_t>(rank)]);
  const auto end = static_cast<size_t>(offsets[static_cast<size_t>(rank) + 1]);
  return all.subspan(begin, end - begin);
}

}  // namespace odyssey
