// SPDX-License-Identifier: Apache-2.0
// What prices measured CPUs, piece by piece: the clock of ranks that share cores, hosts, tiles, and
// the fit of rates.
#include "odyssey/plan/rank_clock.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "odyssey/plan/rank_script.h"
#include "odyssey/plan/rate_fit.h"
#include "odyssey/plan/tile_pairs.h"
#include "odyssey/sequence/needed_rows.h"

namespace odyssey {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using Actions = std::vector<std::vector<RankAction>>;

RankAction work(double seconds) {
  return {RankAction::Kind::kWork, seconds, -1};
}
RankAction send(int peer, double away = 0) {
  return {RankAction::Kind::kSend, away, peer};
}
RankAction receive(int peer) {
  return {RankAction::Kind::kReceive, 0, peer};
}

constexpr double kExact = 1e-9;

TEST(RankClock, RanksShareTheirCoresAndTheBusiestGoesOnAlone) {
  // Work 1, 3, 5, 7 on two cores: 16 / 2 = 8 seconds would be even, but from second 7 on only the
  // last rank has work.
  const Actions actions = {{work(1)}, {work(3)}, {work(5)}, {work(7)}};
  const RankTimes times = run_ranks(actions, {2, 4, 1});
  EXPECT_THAT(times.end_of_rank, ElementsAre(DoubleNear(2, kExact), DoubleNear(5, kExact),
                                             DoubleNear(7, kExact), DoubleNear(9, kExact)));
  EXPECT_DOUBLE_EQ(times.busiest, 7);
  EXPECT_DOUBLE_EQ(times.all, 16);
  // Each on a core of its own, or each on a host of its own.
  EXPECT_NEAR(run_ranks(actions, {4, 4, 1}).seconds, 7, kExact);
  EXPECT_NEAR(run_ranks(actions, {1, 1, 1}).seconds, 7, kExact);
  // Two threads a rank, once there are cores for them.
  EXPECT_NEAR(run_ranks(actions, {8, 4, 2}).seconds, 3.5, kExact);
}

TEST(RankClock, ReceivesWaitForTheirMessages) {
  // Rank 1 waits for 2 seconds of rank 0 and half a second on the way.
  const Actions actions = {{work(2), send(1, 0.5), work(1)}, {work(1), receive(0), work(3)}};
  const RankTimes times = run_ranks(actions, {2, 2, 1});
  EXPECT_THAT(times.end_of_rank, ElementsAre(DoubleNear(3, kExact), DoubleNear(5.5, kExact)));
  // On one core: a rank that waits gives it away. Both work to second 2, rank 0 alone to 3.5.
  EXPECT_NEAR(run_ranks(actions, {1, 2, 1}).end_of_rank[0], 4.5, kExact);
  EXPECT_THROW(run_ranks({{receive(1)}, {}}, {1, 2, 1}), std::exception);
}

// All tiles asked one by one, by the rule of the mask.
int64_t enumerated_pairs(std::span<const Run> queries, std::span<const Run> keys, MaskKind kind,
                         int64_t window, int64_t query_tile) {
  constexpr int64_t kKeys = 64;
  const int64_t rows = count_rows(queries), columns = count_rows(keys);
  int64_t pairs = 0;
  for (int64_t q = 0; q < rows; q += query_tile) {
    const int64_t q_end = std::min(rows, q + query_tile);
    Bounds seen{INT64_MAX, -1};
    for (int64_t i = q; i < q_end; ++i) {
      const Bounds one = visible_keys(kind, window, position_of(queries, i));
      seen = {std::min(seen.least, one.least), std::max(seen.most, one.most)};
    }
    for (int64_t k = 0; k < columns; k += kKeys) {
      const int64_t k_end = std::min(columns, k + kKeys);
      bool any = false;
      for (int64_t i = k; i < k_end; ++i) {
        const int64_t at = position_of(keys, i);
        any = any || (seen.least <= at && at <= seen.most);
      }
      if (any) pairs += (q_end - q) * (k_end - k);
    }
  }
  return pairs;
}

TEST(VisibleTilePairs, AreThoseOfEnumeration) {
  int64_t hidden = 0;
  for (const PlacementKind placement :
       {PlacementKind::kContiguous, PlacementKind::kDualChunkSwap, PlacementKind::kStriped}) {
    for (const MaskKind kind :
         {MaskKind::kCausal, MaskKind::kFull, MaskKind::kLocalSliding, MaskKind::kChunk}) {
      for (const auto& [length, tile] : {std::pair{256, 32}, {1000, 32}, {1024, 96}}) {
        const Placement place(placement, length, 4, 1);
        for (int q = 0; q < 4; ++q) {
          for (int k = 0; k < 4; ++k) {
            const std::vector<odyssey::Run> queries = place.ring_block(q),
                                            keys = place.ring_block(k);
            const int64_t pairs = visible_tile_pairs(queries, keys, kind, 200, tile);
            EXPECT_EQ(pairs, enumerated_pairs(queries, keys, kind, 200, tile))
                << name_of(placement) << " " << name_of(kind) << " " << length << ": " << q
                << " sees " << k;
            hidden += count_rows(queries) * count_rows(keys) - pairs;
          }
        }
      }
    }
  }
  EXPECT_GT(hidden, 0);
}

TEST(HostMap, RanksOfAHostAreNeighbours) {
  // As place_of of comm/mesh.h: 2 x 2 on hosts outside, 2 x 3 inside.
  const HostMap map{4, 6, 2, 2, 6};
  std::vector<int> seen;
  for (int r = 0; r < 4; ++r) {
    for (int u = 0; u < 6; ++u) {
      seen.push_back(map.place(r, u));
      EXPECT_EQ(map.place(r, u) / 6, r / 2 * 2 + u / 3);
    }
  }
  std::sort(seen.begin(), seen.end());
  for (int i = 0; i < 24; ++i) EXPECT_EQ(seen[i], i);
}

TEST(FitRates, FindsThemAgainAndKeepsThemPositive) {
  const std::vector<std::vector<double>> counts = {
      {1e6, 1e3, 1}, {4e6, 2e3, 1}, {1e6, 4e3, 1}, {2e5, 1e2, 1}, {5e5, 5e3, 1}};
  std::vector<double> seconds;
  for (const auto& row : counts) seconds.push_back(row[0] * 5e-10 + row[1] * 1e-7 + 2e-6);
  const RateFit fit = fit_rates(counts, seconds);
  EXPECT_NEAR(fit.rates[0], 5e-10, 1e-13);
  EXPECT_NEAR(fit.rates[1], 1e-7, 1e-10);
  EXPECT_NEAR(fit.rates[2], 2e-6, 1e-8);
  EXPECT_LT(fit.quality.largest_error, 1e-4);
  EXPECT_EQ(fit.quality.samples, 5);
  // Drawn to 1, and the further the less there is of it.
  const RateFit drawn = fit_rates({{10, 0.01}}, {20}, 0.05);
  EXPECT_NEAR(drawn.rates[0], 2, 0.1);
  EXPECT_NEAR(drawn.rates[1], 1, 0.1);
  // Time that falls with a count leaves that count nothing.
  const RateFit clamped = fit_rates({{1, 0}, {1, 1}}, {2, 1});
  EXPECT_EQ(clamped.rates[1], 0);
  EXPECT_GT(clamped.quality.largest_error, 0.2);
}

}  // namespace
}  // namespace odyssey
