// SPDX-License-Identifier: Apache-2.0
// Collectives against sequential models that know what every rank holds.
#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include <gmock/gmock.h>

#include "odyssey/comm/all_gather.h"
#include "odyssey/comm/all_reduce.h"
#include "odyssey/comm/all_to_all.h"
#include "odyssey/comm/barrier.h"
#include "odyssey/comm/broadcast.h"
#include "odyssey/comm/comm_cases.h"
#include "odyssey/comm/parts.h"
#include "odyssey/comm/reduce_scatter.h"

namespace odyssey {
namespace {

constexpr std::array<int64_t, 5> kSizes{0, 1, 7, 1025, 70'001};

// What rank r holds: magnitudes far apart, so that another order of the sum gives other bits.
// A mixed counter (splitmix64) gives sign and fraction, and an exponent from -10 to 5.
float value_of(int rank, int64_t i) {
  uint64_t bits = static_cast<uint64_t>(i) * 64 + static_cast<uint64_t>(rank) + 1;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ULL;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebULL;
  bits ^= bits >> 31;
  const uint32_t exponent = 117 + static_cast<uint32_t>(bits >> 60);
  const auto rest = static_cast<uint32_t>(bits) & 0x807fffffU;
  return std::bit_cast<float>(rest | (exponent << 23));
}

std::vector<float> values_of(int rank, int64_t begin, int64_t end) {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(end - begin));
  for (int64_t i = begin; i < end; ++i) values.push_back(value_of(rank, i));
  return values;
}

// ((x0 + x1) + x2) + ...
std::vector<float> sum_in_rank_order(int ranks, int64_t begin, int64_t end) {
  std::vector<float> sum = values_of(0, begin, end);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::vector<float> values = values_of(rank, begin, end);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  return sum;
}

// The tree that all_reduce.h describes, from the ranks first, first + 1, ... below `end`.
template <class T>
T tree_sum(int first, int end, int64_t i, int ranks) {
  T sum = static_cast<T>(value_of(first, i));
  for (int distance = 1; first + distance < end; distance *= 2) {
    sum += tree_sum<T>(first + distance, std::min(first + 2 * distance, ranks), i, ranks);
  }
  return sum;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return std::ranges::equal(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

// Uneven on purpose: kind 0 even, 1 ragged with empty parts, 2 all on one rank.
std::vector<int64_t> counts_of(int ranks, int64_t size, int kind) {
  std::vector<int64_t> counts(static_cast<size_t>(ranks), size);
  for (int rank = 0; rank < ranks; ++rank) {
    if (kind == 1) counts[static_cast<size_t>(rank)] = rank % 3 == 1 ? 0 : size / 2 + rank;
    if (kind == 2) counts[static_cast<size_t>(rank)] = rank == ranks / 2 ? size : 0;
  }
  return counts;
}

void all_to_all_brings_every_part(Group& group) {
  const int rank = group.rank(), ranks = group.size();
  for (const int64_t size : kSizes) {
    for (const bool ragged : {false, true}) {
      const auto bytes = [&](int from, int to) {
        return ragged ? (from + 2 * to) % 4 * size : size;
      };
      // Two parts for every rank, the second of another size.
      const int64_t before = group.traffic().bytes_sent;
      std::vector<std::vector<std::byte>> out, in, expected;
      int64_t bytes_sent = 0;
      for (int peer = 0; peer < ranks; ++peer) {
        for (const int64_t more : {0, 3}) {
          out.push_back(pattern_message(rank, peer, bytes(rank, peer) + more));
          expected.push_back(pattern_message(peer, rank, bytes(peer, rank) + more));
          in.emplace_back(expected.back().size());
          if (peer != rank) bytes_sent += static_cast<int64_t>(out.back().size());
        }
      }
      std::vector<Part<const std::byte>> send;
      std::vector<Part<std::byte>> receive;
      for (size_t i = 0; i < out.size(); ++i) {
        const int peer = static_cast<int>(i / 2);
        if (peer == rank) continue;
        send.push_back({peer, out[i]});
        receive.push_back({peer, in[i]});
      }
      all_to_all(group, send, receive);
      for (size_t i = 0; i < in.size(); ++i) {
        EXPECT_TRUE(static_cast<int>(i / 2) == rank || in[i] == expected[i]) << size;
      }
      EXPECT_EQ(group.traffic().bytes_sent - before, bytes_sent);
    }
  }
}

void all_gather_brings_every_part(Group& group) {
  const int rank = group.rank(), ranks = group.size();
  for (const int64_t size : kSizes) {
    for (int kind = 0; kind < 3; ++kind) {
      const std::vector<int64_t> counts = counts_of(ranks, size, kind);
      const auto offsets = part_offsets(counts);
      std::vector<std::byte> expected;
      for (int peer = 0; peer < ranks; ++peer) {
        const auto part = pattern_message(peer, 9, counts[static_cast<size_t>(peer)]);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      const auto mine = pattern_message(rank, 9, counts[static_cast<size_t>(rank)]);
      std::vector<std::byte> all(expected.size());
      all_gather(group, mine, all, counts);
      EXPECT_TRUE(all == expected) << size << " kind " << kind;

      std::vector<std::byte> in_place(expected.size());
      const auto own = part_of(std::span(in_place), offsets, rank);
      std::ranges::copy(mine, own.begin());
      all_gather(group, own, in_place, counts);
      EXPECT_TRUE(in_place == expected) << size << " kind " << kind;
    }
  }
}

void reduce_scatter_adds_in_rank_order(Group& group) {
  const int rank = group.rank(), ranks = group.size();
  // 150,001 elements on a rank take three rounds.
  for (const int64_t size : {0, 1, 7, 1025, 150'001}) {
    for (int kind = 0; kind < 3; ++kind) {
      const std::vector<int64_t> counts = counts_of(ranks, size, kind);
      const auto offsets = part_offsets(counts);
      const auto own_index = static_cast<size_t>(rank);
      const std::vector<float> expected =
          sum_in_rank_order(ranks, offsets[own_index], offsets[own_index + 1]);
      std::vector<float> all = values_of(rank, 0, offsets.back());
      std::vector<float> mine(expected.size(), -1.0f);
      std::vector<float> workspace(static_cast<size_t>(reduce_scatter_workspace(counts)));
      reduce_scatter_sum(group, all, mine, counts, workspace);
      EXPECT_TRUE(same_bits(mine, expected)) << size << " kind " << kind;

      const auto own = part_of(std::span(all), offsets, rank);
      reduce_scatter_sum(group, all, own, counts, workspace);
      EXPECT_TRUE(same_bits(std::vector<float>(own.begin(), own.end()), expected))
          << size << " kind " << kind << " in place";
    }
  }
}

void all_reduce_gives_the_same_bits(Group& group) {
  const int rank = group.rank(), ranks = group.size();
  for (const int64_t size : {0, 1, 7, 2049, 70'001}) {
    std::vector<float> large = values_of(rank, 0, size);
    std::vector<float> workspace(static_cast<size_t>(all_reduce_workspace(ranks, size)));
    all_reduce_sum(group, large, workspace);
    EXPECT_TRUE(same_bits(large, sum_in_rank_order(ranks, 0, size))) << size;

    if (size > 4000) continue;
    std::vector<float> small = values_of(rank, 0, size), expected(small.size());
    std::vector<double> wide(small.begin(), small.end()), expected_wide(small.size());
    for (int64_t i = 0; i < size; ++i) {
      expected[static_cast<size_t>(i)] = tree_sum<float>(0, ranks, i, ranks);
      expected_wide[static_cast<size_t>(i)] = tree_sum<double>(0, ranks, i, ranks);
    }
    all_reduce_sum(group, small);
    all_reduce_sum(group, wide);
    EXPECT_TRUE(same_bits(small, expected)) << size;
    EXPECT_TRUE(same_bits(wide, expected_wide)) << size;
  }
}

void maximum_keeps_infinity_and_nan(Group& group) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const int rank = group.rank(), ranks = group.size();
  std::array<float, 4> values{static_cast<float>(rank), static_cast<float>(-rank), -kInfinity, 0};
  all_reduce_max(group, values);
  EXPECT_THAT(values, testing::ElementsAre(static_cast<float>(ranks - 1), 0.0f, -kInfinity, 0.0f));
  for (int bad = 0; bad < ranks; ++bad) {
    std::array<float, 1> value{rank == bad ? NAN : static_cast<float>(rank)};
    all_reduce_max(group, value);
    EXPECT_TRUE(std::isnan(value[0])) << bad;
  }
}

void broadcast_reaches_every_rank(Group& group) {
  for (int root = 0; root < group.size(); ++root) {
    for (const int64_t size : kSizes) {
      const auto expected = pattern_message(root, 3, size);
      auto message = group.rank() == root ? expected : std::vector<std::byte>(expected.size());
      broadcast(group, message, root);
      EXPECT_TRUE(message == expected) << "root " << root << " size " << size;
    }
  }
}

// Thread and process ranks share the clock of the machine.
void barrier_holds_until_the_last_rank_comes(Group& group) {
  const auto seconds = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  for (int late = 0; late < group.size(); ++late) {
    if (group.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    double entered = seconds();
    barrier(group);
    const double left = seconds();
    broadcast(group, std::as_writable_bytes(std::span(&entered, 1)), late);
    EXPECT_GE(left, entered) << late;
  }
}

void collectives_work_in_pieces(Group& group) {
  const int rank = group.rank(), ranks = group.size();
  group.set_piece_limit_bytes(1'000'003);
  constexpr int64_t kBytes = 3'000'010;
  const std::vector<int64_t> bytes(static_cast<size_t>(ranks), kBytes);
  std::vector<std::byte> all(static_cast<size_t>(ranks * kBytes)), back(all.size());
  all_gather(group, pattern_message(rank, 1, kBytes), all, bytes);
  std::vector<Part<const std::byte>> send;
  std::vector<Part<std::byte>> receive;
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    const auto offset = static_cast<size_t>(peer) * kBytes;
    send.push_back({peer, std::span(all).subspan(offset, kBytes)});
    receive.push_back({peer, std::span(back).subspan(offset, kBytes)});
  }
  all_to_all(group, send, receive);
  const auto own = pattern_message(rank, 1, kBytes);
  for (int peer = 0; peer < ranks; ++peer) {
    const auto offset = static_cast<int64_t>(peer) * kBytes;
    EXPECT_TRUE(peer == rank || std::equal(own.begin(), own.end(), back.begin() + offset)) << peer;
    const auto expected = pattern_message(peer, 1, kBytes);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), all.begin() + offset)) << peer;
  }
  // Chunks of a reduction are 256 KiB.
  group.set_piece_limit_bytes(100'003);
  std::vector<float> values = values_of(rank, 0, 300'001);
  std::vector<float> workspace(static_cast<size_t>(all_reduce_workspace(ranks, 300'001)));
  all_reduce_sum(group, values, workspace);
  EXPECT_TRUE(same_bits(values, sum_in_rank_order(ranks, 0, 300'001)));
  group.set_piece_limit_bytes(int64_t{1} << 30);
}

void one_rank_sends_nothing(Group& group) {
  const auto alone = group.split(group.rank(), "alone");
  const std::vector<int64_t> bytes{16};
  std::vector<std::byte> from = pattern_message(0, 0, 16), third(16);
  all_to_all(*alone, {}, {});
  all_gather(*alone, from, third, bytes);
  EXPECT_EQ(from, third);
  std::vector<float> values{1, 2, 3}, sum(3);
  reduce_scatter_sum(*alone, values, sum, std::vector<int64_t>{3}, {});
  EXPECT_EQ(sum, values);
  all_reduce_sum(*alone, values);
  all_reduce_sum(*alone, values, {});
  all_reduce_max(*alone, values);
  EXPECT_EQ(sum, values);
  broadcast(*alone, from, 0);
  barrier(*alone);
  EXPECT_EQ(alone->traffic().messages_sent, 0);
  EXPECT_EQ(alone->traffic().bytes_sent, 0);
}

void wrong_sizes_are_refused_before_any_message(Group& group) {
  const auto ranks = static_cast<size_t>(group.size());
  const int64_t before = group.traffic().messages_sent;
  const std::vector<int64_t> bytes(ranks, 4);
  std::vector<std::byte> buffer(4 * ranks);
  std::vector<float> values(4 * ranks), mine(4);
  const Part<const std::byte> to_itself[] = {{group.rank(), buffer}};
  EXPECT_THROW(all_to_all(group, to_itself, {}), std::logic_error);
  EXPECT_THROW(all_gather(group, std::span(buffer).first(3), buffer, bytes), std::logic_error);
  if (ranks > 1) {
    EXPECT_THROW(reduce_scatter_sum(group, values, mine, bytes, {}), std::logic_error);
  }
  EXPECT_THROW(broadcast(group, buffer, group.size()), std::logic_error);
  EXPECT_EQ(group.traffic().messages_sent, before);
}

}  // namespace

std::vector<CommCase> collective_cases() {
  return {{"AllToAllBringsEveryPart", all_to_all_brings_every_part},
          {"AllGatherBringsEveryPart", all_gather_brings_every_part},
          {"ReduceScatterAddsInRankOrder", reduce_scatter_adds_in_rank_order},
          {"AllReduceGivesTheSameBits", all_reduce_gives_the_same_bits},
          {"MaximumKeepsInfinityAndNan", maximum_keeps_infinity_and_nan},
          {"BroadcastReachesEveryRank", broadcast_reaches_every_rank},
          {"BarrierHoldsUntilTheLastRankComes", barrier_holds_until_the_last_rank_comes},
          {"CollectivesWorkInPieces", collectives_work_in_pieces},
          {"OneRankSendsNothing", one_rank_sends_nothing},
          {"WrongSizesAreRefusedBeforeAnyMessage", wrong_sizes_are_refused_before_any_message}};
}

}  // namespace odyssey
