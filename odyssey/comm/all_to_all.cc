// SPDX-License-Identifier: Apache-2.0
// All transfers at once, receives posted before sends; the own part is a plain copy meanwhile.
#include "odyssey/comm/all_to_all.h"

#include <algorithm>
#include <vector>

#include "odyssey/base/error.h"
#include "odyssey/comm/parts.h"

namespace odyssey {
namespace {

std::vector<int64_t> checked_offsets(const Group& group, int64_t bytes,
                                     std::span<const int64_t> counts, const char* side) {
  ODYSSEY_CHECK(counts.size() == static_cast<size_t>(group.size()), "{} {} parts for {} ranks",
                counts.size(), side, group.size());
  std::vector<int64_t> offsets = part_offsets(counts);
  ODYSSEY_CHECK(offsets.back() == bytes, "{} parts of {} bytes in a buffer of {}", side,
                offsets.back(), bytes);
  return offsets;
}

}  // namespace

void all_to_all(Group& group, std::span<const std::byte> send, std::span<const int64_t> send_bytes,
                std::span<std::byte> receive, std::span<const int64_t> receive_bytes) {
  const int rank = group.rank(), size = group.size();
  const auto send_offsets =
      checked_offsets(group, static_cast<int64_t>(send.size()), send_bytes, "send");
  const auto receive_offsets =
      checked_offsets(group, static_cast<int64_t>(receive.size()), receive_bytes, "receive");

  // Peers in rotated order, so that no rank is everybody's first.
  std::vector<RequestPtr> requests;
  requests.reserve(2 * static_cast<size_t>(size));
  for (int step = 1; step < size; ++step) {
    const int from = (rank - step + size) % size;
    const auto part = part_of(receive, receive_offsets, from);
    if (!part.empty()) requests.push_back(group.receive(part, from, Tag::kAllToAll));
  }
  for (int step = 1; step < size; ++step) {
    const int to = (rank + step) % size;
    const auto part = part_of(send, send_offsets, to);
    if (!part.empty()) requests.push_back(group.send(part, to, Tag::kAllToAll));
  }
  const auto own_from = part_of(send, send_offsets, rank);
  const auto own_to = part_of(receive, receive_offsets, rank);
  ODYSSEY_CHECK(own_from.size() == own_to.size(), "rank {} sends itself {} bytes and receives {}",
                rank, own_from.size(), own_to.size());
  std::copy(own_from.begin(), own_from.end(), own_to.begin());
  group.wait_all(requests);
}

}  // namespace odyssey
