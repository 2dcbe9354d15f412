// SPDX-License-Identifier: Apache-2.0
// All transfers at once, receives posted before sends.
#include "odyssey/comm/all_to_all.h"

#include <algorithm>
#include <vector>

namespace odyssey {

void all_to_all(Group& group, std::span<const Part<const std::byte>> send,
                std::span<const Part<std::byte>> receive) {
  std::vector<RequestPtr> requests;
  requests.reserve(send.size() + receive.size());
  for (const auto& part : receive) {
    if (part.bytes.empty()) continue;
    requests.push_back(group.receive(part.bytes, part.rank, Tag::kAllToAll));
  }
  // Peers in rotated order, so that no rank is everybody's first.
  const auto start =
      std::ranges::find_if(send, [&](const auto& part) { return part.rank > group.rank(); });
  const auto send_all = [&](auto begin, auto end) {
    for (auto part = begin; part != end; ++part) {
      if (part->bytes.empty()) continue;
      requests.push_back(group.send(part->bytes, part->rank, Tag::kAllToAll));
    }
  };
  send_all(start, send.end());
  send_all(send.begin(), start);
  group.wait_all(requests);
}

}  // namespace odyssey
