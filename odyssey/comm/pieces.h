// SPDX-License-Identifier: Apache-2.0
// How a message is cut where counts have 32 bits: all pieces have the size of the limit but the
// last, which is smaller, possibly empty. So the pieces of two different sizes always differ
// somewhere.
#pragma once
#include <cstdint>

namespace odyssey {

// size: bytes, any. limit: 1 to 2^31-1.
struct Pieces {
  int64_t size = 0;
  int64_t limit = 1;

  int64_t count() const { return size / limit + 1; }
  int64_t begin(int64_t piece) const { return piece * limit; }
  int bytes(int64_t piece) const {
    return static_cast<int>(piece + 1 < count() ? limit : size - begin(piece));
  }
};

}  // namespace odyssey
