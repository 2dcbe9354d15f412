// SPDX-License-Identifier: Apache-2.0
// In shift s a rank passes on the part that it received in shift s-1, starting with its own.
#include "odyssey/comm/all_gather.h"

#include <algorithm>
#include <array>
#include <vector>

#include "odyssey/base/error.h"
#include "odyssey/comm/parts.h"

namespace odyssey {

void all_gather(Group& group, std::span<const std::byte> mine, std::span<std::byte> all,
                std::span<const int64_t> bytes_per_rank) {
  const int rank = group.rank(), size = group.size();
  ODYSSEY_CHECK(bytes_per_rank.size() == static_cast<size_t>(size), "{} parts for {} ranks",
                bytes_per_rank.size(), size);
  const std::vector<int64_t> offsets = part_offsets(bytes_per_rank);
  ODYSSEY_CHECK(offsets.back() == static_cast<int64_t>(all.size()),
                "parts of {} bytes in a buffer of {}", offsets.back(), all.size());
  const auto own = part_of(all, offsets, rank);
  ODYSSEY_CHECK(own.size() == mine.size(), "rank {} gives {} bytes, its part has {}", rank,
                mine.size(), own.size());
  if (own.data() != mine.data()) std::copy(mine.begin(), mine.end(), own.begin());

  const int next = (rank + 1) % size, previous = (rank - 1 + size) % size;
  for (int shift = 0; shift + 1 < size; ++shift) {
    const auto outgoing = part_of(all, offsets, (rank - shift + size) % size);
    const auto incoming = part_of(all, offsets, (previous - shift + size) % size);
    std::array<RequestPtr, 2> requests;
    if (!incoming.empty()) requests[0] = group.receive(incoming, previous, Tag::kAllGather);
    if (!outgoing.empty()) requests[1] = group.send(outgoing, next, Tag::kAllGather);
    group.wait_all(requests);
  }
}

}  // namespace odyssey
