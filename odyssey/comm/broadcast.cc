// SPDX-License-Identifier: Apache-2.0
#include "odyssey/comm/broadcast.h"

#include <array>

#include "odyssey/base/error.h"

namespace odyssey {

void broadcast(Group& group, std::span<std::byte> message, int root) {
  const int size = group.size();
  ODYSSEY_CHECK(0 <= root && root < size, "root {} of {} ranks", root, size);
  if (message.empty()) return;
  // Counted from the root: rank v receives from v without its lowest bit, then serves v + the bits
  // below that one.
  const int relative = (group.rank() - root + size) % size;
  const auto absolute = [&](int v) { return (v + root) % size; };
  int distance = 1;
  while (distance < size && (relative & distance) == 0) distance *= 2;
  if (relative != 0) {
    RequestPtr request = group.receive(message, absolute(relative - distance), Tag::kBroadcast);
    group.wait(request);
  }
  std::array<RequestPtr, 31> sends;  // one for each bit of a rank
  size_t count = 0;
  for (distance /= 2; distance > 0; distance /= 2) {
    if (relative + distance >= size) continue;
    sends[count++] = group.send(message, absolute(relative + distance), Tag::kBroadcast);
  }
  group.wait_all(sends);
}

}  // namespace odyssey
