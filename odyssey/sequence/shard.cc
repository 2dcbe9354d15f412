// SPDX-License-Identifier: Apache-2.0
#include "odyssey/sequence/shard.h"

#include "odyssey/base/error.h"

namespace odyssey {

void take_rows(std::span<const Run> runs, std::span<const int32_t> row, std::span<int32_t> out) {
  ODYSSEY_CHECK(static_cast<int64_t>(out.size()) == count_rows(runs), "{} places for {} rows",
                out.size(), count_rows(runs));
  size_t next = 0;
  for (const Run& run : runs) {
    for (int64_t i = 0; i < run.count; ++i) out[next++] = row[run.first + i * run.stride];
  }
}

}  // namespace odyssey
