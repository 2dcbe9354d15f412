// SPDX-License-Identifier: Apache-2.0
// Dissemination: after round k a rank has heard, directly or not, of the 2^(k+1) ranks up to
// itself. Source: Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization", 1988.
#include "odyssey/comm/barrier.h"

#include <array>

namespace odyssey {

void barrier(Group& group) {
  const int rank = group.rank(), size = group.size();
  for (int64_t distance = 1; distance < size; distance *= 2) {
    const int step = static_cast<int>(distance);
    std::array<RequestPtr, 2> requests;
    requests[0] = group.receive({}, (rank - step + size) % size, Tag::kBarrier);
    requests[1] = group.send({}, static_cast<int>((rank + distance) % size), Tag::kBarrier);
    group.wait_all(requests);
  }
}

}  // namespace odyssey
