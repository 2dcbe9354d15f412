// SPDX-License-Identifier: Apache-2.0
// Direct exchange in rounds of one chunk: in a round every rank sends each peer a chunk of that
// peer's part and adds up, in rank order, the chunks of its own part. A ring would move as many
// bytes but start each sum at another rank, so the bits would depend on how the elements are cut.
#include "odyssey/comm/reduce_scatter.h"

#include <algorithm>
#include <array>
#include <vector>

#include "odyssey/base/error.h"
#include "odyssey/comm/parts.h"

namespace odyssey {
namespace {

// 256 KiB: large enough for full bandwidth, and the chunks of a few ranks are added from cache.
constexpr int64_t kChunk = 65536;

class Rounds {
 public:
  Rounds(Group& group, std::span<const float> all, std::span<float> mine,
         std::span<const int64_t> counts, std::span<float> workspace)
      : group_(group),
        all_(all),
        mine_(mine),
        workspace_(workspace),
        offsets_(part_offsets(counts)),
        slot_size_(std::min(kChunk, counts[static_cast<size_t>(group.rank())])) {}

  // Starts the transfers of a round; two rounds are under way at a time.
  void start(int64_t round) {
    const int rank = group_.rank(), size = group_.size();
    std::vector<RequestPtr>& requests = requests_[static_cast<size_t>(round % 2)];
    requests.clear();
    for (int step = 1; step < size; ++step) {
      const int from = (rank - step + size) % size;
      const std::span<float> target = slot(round, from);
      if (target.empty()) break;
      requests.push_back(group_.receive(std::as_writable_bytes(target), from, Tag::kReduceScatter));
    }
    for (int step = 1; step < size; ++step) {
      const int to = (rank + step) % size;
      const auto source = chunk(part_of(all_, offsets_, to), round);
      if (source.empty()) continue;
      requests.push_back(group_.send(std::as_bytes(source), to, Tag::kReduceScatter));
    }
  }

  void finish(int64_t round) {
    group_.wait_all(requests_[static_cast<size_t>(round % 2)]);
    // A block at a time, so that the running sum stays in the first-level cache.
    constexpr size_t kBlock = 1024;
    const std::span<float> target = chunk(mine_, round);
    const auto own = chunk(part_of(all_, offsets_, group_.rank()), round);
    for (size_t begin = 0; begin < target.size(); begin += kBlock) {
      const size_t count = std::min(kBlock, target.size() - begin);
      std::array<float, kBlock> sum;
      for (int rank = 0; rank < group_.size(); ++rank) {
        const float* source = rank == group_.rank() ? own.data() : slot(round, rank).data();
        source += begin;
        if (rank == 0) {
          std::copy(source, source + count, sum.begin());
        } else {
          for (size_t i = 0; i < count; ++i) sum[i] += source[i];
        }
      }
      std::copy(sum.begin(), sum.begin() + static_cast<int64_t>(count),
                target.begin() + static_cast<int64_t>(begin));
    }
  }

 private:
  // What a round moves of a part; empty when the part has ended.
  template <class T>
  static std::span<T> chunk(std::span<T> part, int64_t round) {
    const size_t begin = std::min(part.size(), static_cast<size_t>(round * kChunk));
    return part.subspan(begin, std::min(part.size() - begin, static_cast<size_t>(kChunk)));
  }
  // Where this round's chunk from a peer arrives.
  std::span<float> slot(int64_t round, int from) {
    const int64_t index = from < group_.rank() ? from : from - 1;
    const int64_t begin = ((round % 2) * (group_.size() - 1) + index) * slot_size_;
    return workspace_.subspan(static_cast<size_t>(begin), chunk(mine_, round).size());
  }

  Group& group_;
  std::span<const float> all_;
  std::span<float> mine_;
  std::span<float> workspace_;
  std::vector<int64_t> offsets_;
  int64_t slot_size_;
  std::array<std::vector<RequestPtr>, 2> requests_;
};

}  // namespace

int64_t reduce_scatter_workspace(std::span<const int64_t> counts) {
  const int64_t largest = *std::max_element(counts.begin(), counts.end());
  return 2 * (static_cast<int64_t>(counts.size()) - 1) * std::min(kChunk, largest);
}

void reduce_scatter_sum(Group& group, std::span<const float> all, std::span<float> mine,
                        std::span<const int64_t> counts, std::span<float> workspace) {
  const auto rank = static_cast<size_t>(group.rank());
  ODYSSEY_CHECK(counts.size() == static_cast<size_t>(group.size()), "{} parts for {} ranks",
                counts.size(), group.size());
  ODYSSEY_CHECK(part_offsets(counts).back() == static_cast<int64_t>(all.size()),
                "parts do not add up to {} elements", all.size());
  ODYSSEY_CHECK(counts[rank] == static_cast<int64_t>(mine.size()),
                "rank {} has {} elements for a part of {}", rank, mine.size(), counts[rank]);
  ODYSSEY_CHECK(static_cast<int64_t>(workspace.size()) >= reduce_scatter_workspace(counts),
                "workspace of {} elements", workspace.size());
  Rounds rounds(group, all, mine, counts, workspace);
  const int64_t largest = *std::max_element(counts.begin(), counts.end());
  const int64_t count = (largest + kChunk - 1) / kChunk;
  if (count > 0) rounds.start(0);
  for (int64_t round = 0; round < count; ++round) {
    if (round + 1 < count) rounds.start(round + 1);
    rounds.finish(round);
  }
}

}  // namespace odyssey
