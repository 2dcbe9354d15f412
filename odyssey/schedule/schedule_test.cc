// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "odyssey/schedule/checker.h"
#include "odyssey/schedule/step.h"

namespace odyssey {
namespace {

AttentionLayout make_layout(int ring, int ulysses, bool gather = false, int64_t length = 64,
                            PlacementKind kind = PlacementKind::kContiguous) {
  AttentionLayout layout{Placement(kind, length, ring, ulysses), HeadMap(8, 4, ulysses)};
  layout.outer_gather = gather;
  layout.head_size = 16;
  layout.element_bytes = 2;
  layout.batch = 3;
  return layout;
}

std::vector<StepKind> kinds(const std::vector<Step>& steps) {
  std::vector<StepKind> result;
  for (const Step& step : steps) result.push_back(step.kind);
  return result;
}

TEST(HeadMap, EveryQueryHeadHasOneOwnerThatAlsoHasItsKvHead) {
  for (auto [h, k] : {std::pair<int64_t, int64_t>{8, 2},
                      {8, 1},
                      {16, 8},
                      {9, 3},
                      {28, 7},
                      {5, 1},
                      {40, 8},
                      {6, 6}}) {
    for (int ulysses : {1, 2, 3, 4, 5, 8}) {
      const HeadMap map(h, k, ulysses);
      int64_t next = 0;
      for (int u = 0; u < ulysses; ++u) {
        ASSERT_EQ(map.query_begin(u), next);
        next += map.query_count(u);
        for (int64_t i = 0; i < map.query_count(u); ++i) {
          const int64_t kv = (map.query_begin(u) + i) / (h / k);
          ASSERT_GE(kv, map.kv_begin(u));
          ASSERT_LT(kv, map.kv_begin(u) + map.kv_count(u));
          ASSERT_EQ((map.phase(u) + i) / (h / k), kv - map.kv_begin(u));
        }
        ASSERT_LE(map.kv_count(u), map.query_count(u));
      }
      ASSERT_EQ(next, h);
    }
  }
}

TEST(HeadMap, SaysHowUnevenTheLoadIs) {
  EXPECT_EQ(HeadMap(8, 4, 4).query_imbalance(), 1);
  EXPECT_EQ(HeadMap(8, 1, 8).kv_imbalance(), 1);                        // a copy each
  EXPECT_DOUBLE_EQ(HeadMap(9, 3, 4).query_imbalance(), 3 / (9.0 / 4));  // 3 2 2 2
  EXPECT_DOUBLE_EQ(HeadMap(9, 3, 4).kv_imbalance(), 2 / (5.0 / 4));     // 1 1 2 1
  EXPECT_DOUBLE_EQ(HeadMap(5, 1, 3).query_imbalance(), 6.0 / 5);
}

TEST(Schedule, OneRankOnlyAttends) {
  EXPECT_EQ(kinds(forward_schedule(make_layout(1, 1), 0, 0)),
            std::vector<StepKind>{StepKind::kAttend});
  EXPECT_EQ(kinds(backward_schedule(make_layout(1, 1), 0, 0)),
            std::vector<StepKind>{StepKind::kAttend});
  EXPECT_EQ(kinds(forward_schedule(make_layout(1, 1, true), 0, 0)),
            std::vector<StepKind>{StepKind::kAttend});
}

TEST(Schedule, CausalRingOverlapsEveryShiftAndMakesNoUselessOne) {
  // Rank 1 of 3 sees its own block and block 0, not block 2.
  const auto steps = kinds(forward_schedule(make_layout(3, 1), 1, 0));
  EXPECT_EQ(steps,
            (std::vector<StepKind>{StepKind::kShift, StepKind::kAttend, StepKind::kAwaitShift,
                                   StepKind::kShift, StepKind::kAttend, StepKind::kAwaitShift}));
}

TEST(Schedule, BytesFollowTheFormulas) {
  // S=64, B=3, H=8, K=4, D=16, 2 bytes. Ring of 4: 3 hops of K and V of 16 tokens.
  EXPECT_EQ(bytes_sent(forward_schedule(make_layout(4, 1), 0, 0)), 3 * (2 * 3 * 16 * 4 * 16 * 2));
  EXPECT_EQ(bytes_sent(forward_schedule(make_layout(4, 1, true), 0, 0)),
            3 * (2 * 3 * 16 * 4 * 16 * 2));
  // Backward: 3 hops of K and V, 4 hops of dK and dV in fp32.
  EXPECT_EQ(bytes_sent(backward_schedule(make_layout(4, 1), 0, 0)),
            3 * (2 * 3 * 16 * 4 * 16 * 2) + 4 * (2 * 3 * 16 * 4 * 16 * 4));
  EXPECT_EQ(bytes_sent(backward_schedule(make_layout(4, 1, true), 0, 0)),
            3 * (2 * 3 * 16 * 4 * 16 * 4));
  // Ulysses of 4: 3 of 4 parts of q, k, v go and of out come back; 16 tokens, 8 + 2 * 4 + 8 heads.
  EXPECT_EQ(bytes_sent(forward_schedule(make_layout(1, 4), 0, 0)),
            3 * 16 * 16 * 2 * 3 * (8 + 8 + 8) / 4);
  // usp 2x4: the hop of a ring of R costs what a hop of a ring of P costs, but there are R of them.
  const auto usp = forward_schedule(make_layout(2, 4), 0, 0);
  const auto shift = std::find_if(usp.begin(), usp.end(),
                                  [](const Step& s) { return s.kind == StepKind::kShift; });
  EXPECT_EQ(shift->bytes_sent, 2 * 3 * 32 * 1 * 16 * 2);
}

TEST(Schedule, BalancedPlacementsGiveEveryRankTheSameCausalWork) {
  for (PlacementKind kind : {PlacementKind::kDualChunkSwap, PlacementKind::kStriped}) {
    std::vector<int64_t> work;
    for (int r = 0; r < 8; ++r) {
      int64_t pairs = 0;
      for (const Step& step : forward_schedule(make_layout(8, 1, false, 4096, kind), r, 0))
        pairs += step.pairs;
      work.push_back(pairs);
    }
    const auto [least, most] = std::minmax_element(work.begin(), work.end());
    EXPECT_LT(static_cast<double>(*most) / static_cast<double>(*least), 1.01);
  }
}

TEST(Checker, ProvesEveryLayoutOfTheFamily) {
  for (int ring : {1, 2, 3, 4, 5, 8}) {
    for (int ulysses : {1, 2, 3, 4}) {
      for (bool gather : {false, true}) {
        for (int64_t length : {1, 7, 64, 61}) {
          for (auto kind : {PlacementKind::kContiguous, PlacementKind::kDualChunkSwap,
                            PlacementKind::kStriped, PlacementKind::kPerDocument}) {
            for (auto mask :
                 {MaskKind::kCausal, MaskKind::kFull, MaskKind::kLocalSliding, MaskKind::kChunk}) {
              AttentionLayout layout = make_layout(ring, ulysses, gather, length, kind);
              layout.kind = mask;
              layout.window = 5;
              if (kind == PlacementKind::kPerDocument) {
                std::vector<int32_t> segments(length * 3, 1);  // the third row: one document
                for (int64_t i = 0; i < 2 * length; ++i) {
                  segments[i] = static_cast<int32_t>(i < length ? i / 10 : i % 7 == 0);
                }
                layout.rows = row_placements(layout.placement, 3, segments);
              }
              ASSERT_EQ(find_fault(layout), "")
                  << ring << "x" << ulysses << " gather=" << gather << " S=" << length;
            }
          }
        }
      }
    }
  }
}

// Breaks one list of a right schedule and returns what the checker says.
std::string fault_after(const AttentionLayout& layout, Direction direction,
                        const std::function<void(std::vector<Step>&)>& damage) {
  std::vector<std::vector<std::vector<Step>>> steps(layout.ring_size());
  for (int r = 0; r < layout.ring_size(); ++r) {
    for (int u = 0; u < layout.ulysses_size(); ++u) {
      steps[r].push_back(direction == Direction::kForward ? forward_schedule(layout, r, u)
                                                          : backward_schedule(layout, r, u));
    }
  }
  damage(steps[1][0]);
  return find_fault(layout, direction, steps);
}

TEST(Checker, FindsEveryKindOfDamage) {
  const AttentionLayout layout = make_layout(4, 2);
  const auto find = [](std::vector<Step>& steps, StepKind kind) {
    return std::find_if(steps.begin(), steps.end(), [&](const Step& s) { return s.kind == kind; });
  };
  const auto without = [&](StepKind kind) {
    return [&find, kind](std::vector<Step>& steps) { steps.erase(find(steps, kind)); };
  };
  using enum Direction;
  EXPECT_THAT(fault_after(layout, kForward, without(StepKind::kAttend)),
              testing::HasSubstr("attends 0 times"));
  EXPECT_THAT(fault_after(layout, kForward, without(StepKind::kShift)),
              testing::HasSubstr("has not started to receive"));
  EXPECT_THAT(fault_after(layout, kForward, without(StepKind::kAwaitShift)),
              testing::HasSubstr("it does not have"));
  EXPECT_THAT(fault_after(layout, kForward, without(StepKind::kExchangeOut)),
              testing::HasSubstr("waits for ever"));
  EXPECT_THAT(fault_after(layout, kBackward, without(StepKind::kAwaitGradient)),
              testing::HasSubstr("lack the part"));
  EXPECT_THAT(
      fault_after(layout, kForward, [&](auto& s) { s.push_back(*find(s, StepKind::kAttend)); }),
      testing::HasSubstr("attends 2 times"));
  EXPECT_THAT(
      fault_after(layout, kForward, [&](auto& s) { find(s, StepKind::kShift)->bytes_sent += 1; }),
      testing::HasSubstr("bytes"));
  EXPECT_THAT(
      fault_after(layout, kForward, [&](auto& s) { find(s, StepKind::kAttend)->pairs += 1; }),
      testing::HasSubstr("pairs"));
  EXPECT_THAT(fault_after(layout, kForward,
                          [&](auto& s) { find(s, StepKind::kExchangeIn)->bytes_sent += 1; }),
              testing::HasSubstr("the group sends"));
}

}  // namespace
}  // namespace odyssey
