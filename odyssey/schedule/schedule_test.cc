// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "odyssey/base/random.h"
#include "odyssey/schedule/block_buffers.h"
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

AttentionLayout one_by_one(AttentionLayout layout) {
  layout.hops_at_once = 1;
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
  using enum StepKind;
  // Rank 1 of 3 is seen by rank 2 and sees rank 0, both at hop 1. Hop 2 has nothing for it: rank 2
  // is not seen by rank 0, and rank 0 sends to rank 2.
  const std::vector<Step> forward = forward_schedule(one_by_one(make_layout(3, 1)), 1, 0);
  EXPECT_EQ(kinds(forward), (std::vector<StepKind>{kShift, kAttend, kAwaitShift, kAttend}));
  EXPECT_EQ(forward[0].to, 2);
  EXPECT_EQ(forward[0].from, 0);
  // Rank 0 attends to its own block and sends it twice.
  EXPECT_EQ(kinds(forward_schedule(one_by_one(make_layout(3, 1)), 0, 0)),
            (std::vector<StepKind>{kShift, kAttend, kAwaitShift, kShift, kAwaitShift}));
  // The gradients follow one hop behind, each while the next block is attended to.
  EXPECT_EQ(kinds(backward_schedule(one_by_one(make_layout(3, 1)), 2, 0)),
            (std::vector<StepKind>{kShift, kAttend, kAwaitShift, kShift, kAttend, kShiftGradient,
                                   kAwaitShift, kAttend, kAwaitGradient, kShiftGradient,
                                   kAwaitGradient}));
  EXPECT_EQ(kinds(forward_schedule(make_layout(3, 1, true), 2, 0)),
            (std::vector<StepKind>{kGather, kGather, kAttend, kAttend, kAttend}));
}

// Both hops of a pair travel while the own block is attended to, and are one call then.
TEST(Schedule, HopsGoInGroups) {
  using enum StepKind;
  const AttentionLayout layout = make_layout(4, 1);
  EXPECT_EQ(kinds(forward_schedule(layout, 3, 0)),
            (std::vector<StepKind>{kShift, kShift, kAttend, kAwaitShift, kAwaitShift, kShift,
                                   kAttend, kAttend, kAwaitShift, kAttend}));
  EXPECT_EQ(
      kinds(backward_schedule(layout, 3, 0)),
      (std::vector<StepKind>{kShift, kShift, kAttend, kAwaitShift, kAwaitShift, kShift, kAttend,
                             kAttend, kShiftGradient, kShiftGradient, kAwaitShift, kAttend,
                             kAwaitGradient, kAwaitGradient, kShiftGradient, kAwaitGradient}));
  // The group of a hop is its distance, whatever else a rank leaves out.
  AttentionLayout chunks = layout;
  chunks.kind = MaskKind::kLocalSliding;
  chunks.window = 1;
  EXPECT_EQ(kinds(forward_schedule(chunks, 3, 0)), std::vector<StepKind>{kAttend});
}

AttentionLayout with_mask(AttentionLayout layout, MaskKind kind, int64_t window = 0) {
  layout.kind = kind;
  layout.window = window;
  return layout;
}

// Causal and contiguous, 16 rows a block: rank r sees r other blocks.
TEST(Schedule, RowsOfAKernelCall) {
  for (int r = 0; r < 4; ++r) {
    const BlockBuffers ring = block_buffers(make_layout(4, 2), r, 0);
    EXPECT_EQ(ring.forward_at_once, r < 2 ? 16 : 32) << r;
    EXPECT_EQ(ring.backward_at_once, r < 2 ? 16 : 32) << r;
    const BlockBuffers gather = block_buffers(make_layout(4, 2, true), r, 0);
    EXPECT_EQ(gather.forward_at_once, 16 * (r + 1)) << r;
    EXPECT_EQ(gather.backward_at_once, r < 2 ? 16 : 32) << r;
  }
  EXPECT_EQ(most_rows_at_once(make_layout(4, 2, true)).forward, 64);
}

TEST(Schedule, BytesFollowTheFormulas) {
  // S=64, B=3, H=8, K=4, D=16, 2 bytes. Ring of 4: 3 hops of K and V of 16 tokens.
  const int64_t block = 2 * 3 * 16 * 4 * 16;
  for (bool gather : {false, true}) {
    const AttentionLayout full = with_mask(make_layout(4, 1, gather), MaskKind::kFull);
    EXPECT_EQ(bytes_sent(forward_schedule(full, 0, 0)), 3 * block * 2);
    // Backward: the same again, unless it was gathered, and dK and dV in fp32.
    EXPECT_EQ(bytes_sent(backward_schedule(full, 0, 0)),
              (gather ? 0 : 3 * block * 2) + 3 * block * 4);
    // Causal: block r goes to the R - 1 - r ranks behind, its gradients come from them.
    for (int r = 0; r < 4; ++r) {
      const AttentionLayout causal = make_layout(4, 1, gather);
      EXPECT_EQ(bytes_sent(forward_schedule(causal, r, 0)), (3 - r) * block * 2);
      EXPECT_EQ(bytes_sent(backward_schedule(causal, r, 0)),
                (gather ? 0 : (3 - r) * block * 2) + r * block * 4);
      EXPECT_EQ(sent_bytes(causal, r, 0).needed, bytes_sent(forward_schedule(causal, r, 0)) +
                                                     bytes_sent(backward_schedule(causal, r, 0)));
      EXPECT_EQ(sent_bytes(causal, r, 0).untrimmed, sent_bytes(full, r, 0).needed);
    }
  }
  // dual_chunk_swap, causal: whole blocks to the ranks before, the first half to those behind.
  const AttentionLayout swapped = make_layout(4, 1, false, 64, PlacementKind::kDualChunkSwap);
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(bytes_sent(forward_schedule(swapped, r, 0)), r * block * 2 + (3 - r) * block);
  }
  // A window of 5 tokens: the last 4 tokens of a block go to the next rank.
  const AttentionLayout window = with_mask(make_layout(4, 1), MaskKind::kLocalSliding, 5);
  EXPECT_EQ(bytes_sent(forward_schedule(window, 0, 0)), block * 2 * 4 / 16);
  EXPECT_EQ(bytes_sent(forward_schedule(window, 3, 0)), 0);
  // Chunks of 16 tokens: nobody needs anything.
  const AttentionLayout chunk = with_mask(make_layout(4, 1), MaskKind::kChunk, 16);
  EXPECT_EQ(bytes_sent(forward_schedule(chunk, 0, 0)), 0);
  // Ulysses of 4: 3 of 4 parts of q, k, v go and of out come back; 16 tokens, 8 + 2 * 4 + 8 heads.
  EXPECT_EQ(bytes_sent(forward_schedule(make_layout(1, 4), 0, 0)),
            3 * 16 * 16 * 2 * 3 * (8 + 8 + 8) / 4);
  // usp 2x4: the hop of a ring of R costs what a hop of a ring of P costs, but there are R of them.
  const auto usp = forward_schedule(make_layout(2, 4), 0, 0);
  const auto shift = std::find_if(usp.begin(), usp.end(),
                                  [](const Step& s) { return s.kind == StepKind::kShift; });
  EXPECT_EQ(shift->bytes_sent, 2 * 3 * 32 * 1 * 16 * 2);
}

// What the masks of S=16384 cost a ring of 8.
TEST(Schedule, AWindowSendsASeventhOfTheCausalRing) {
  const auto all_ranks = [](const AttentionLayout& layout) {
    int64_t bytes = 0;
    for (int r = 0; r < layout.ring_size(); ++r) bytes += sent_bytes(layout, r, 0).needed;
    return bytes;
  };
  const AttentionLayout causal = make_layout(8, 1, false, 16384);
  EXPECT_LT(7 * all_ranks(with_mask(causal, MaskKind::kLocalSliding, 1024)), all_ranks(causal));
}

// Each rank receives the rows that it sees, counted pair by pair, and no others.
TEST(Schedule, RowsThatTravelAreThoseThatAreSeen) {
  for (auto placement :
       {PlacementKind::kContiguous, PlacementKind::kDualChunkSwap, PlacementKind::kStriped}) {
    for (auto mask :
         {MaskKind::kCausal, MaskKind::kFull, MaskKind::kLocalSliding, MaskKind::kChunk}) {
      for (int64_t window : {1, 3, 7, 20}) {
        for (bool gather : {false, true}) {
          const AttentionLayout layout =
              with_mask(make_layout(5, 2, gather, 67, placement), mask, window);
          for (int r = 0; r < 5; ++r) {
            int64_t seen = 0, received = 0;
            for (int block = 0; block < 5; ++block) {
              const auto queries = layout.placement.ring_block(r);
              const auto keys = layout.placement.ring_block(block);
              for (int64_t k = 0; block != r && k < count_rows(keys); ++k) {
                bool any = false;
                for (int64_t q = 0; q < count_rows(queries); ++q)
                  any |= visible(mask, window, position_of(queries, q), position_of(keys, k));
                seen += any ? 1 : 0;
              }
            }
            for (const Step& step : forward_schedule(layout, r, 0)) {
              if (step.kind == StepKind::kShift || step.kind == StepKind::kGather)
                received += step.bytes_received;
            }
            ASSERT_EQ(received, seen * layout.row_elements(0) * 2)
                << name_of(placement) << " " << name_of(mask) << " window " << window;
          }
        }
      }
    }
  }
}

// Segment ids of a batch: random documents, some of padding, some ids again and again.
template <class Draw>
std::vector<int32_t> random_segments(int64_t size, int64_t mean_length, const Draw& draw) {
  std::vector<int32_t> ids(size);
  for (int64_t i = 0; i < size; ++i) {
    ids[i] = i > 0 && draw(mean_length) > 0 ? ids[i - 1] : static_cast<int32_t>(draw(9));
  }
  return ids;
}

// The same of packed rows: what documents hide does not travel, neither as K, V nor as dK, dV.
TEST(Schedule, RowsThatDocumentsHideDoNotTravel) {
  const Random random(5, 1);
  uint64_t next = 0;
  const auto draw = [&](int64_t most) {
    return static_cast<int64_t>(random.integer(next++, static_cast<uint64_t>(most)));
  };
  int64_t saved = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const int ring = static_cast<int>(2 + draw(5));
    const int64_t length = 1 + draw(67), batch = 1 + draw(2);
    AttentionLayout layout =
        with_mask(make_layout(ring, 1, draw(2) == 0, length, static_cast<PlacementKind>(draw(4))),
                  static_cast<MaskKind>(draw(4)), 1 + draw(20));
    layout.batch = batch;
    layout.segmented = true;
    const AttentionLayout one = of_batch(layout, {});
    const std::vector<int32_t> ids = random_segments(batch * length, 1 + draw(20), draw);
    layout = of_batch(layout, ids);
    const auto rows = row_placements(layout.placement, batch, ids);
    std::vector<int64_t> received(ring, 0), sent(ring, 0);  // rows, counted pair by pair
    for (int r = 0; r < ring; ++r) {
      for (int block = 0; block < ring; ++block) {
        for (int64_t k = 0; block != r && k < layout.placement.ring_block_rows(block); ++k) {
          bool any = false;
          for (int64_t b = 0; b < batch; ++b) {
            const auto queries = rows[b].ring_block(r);
            const int64_t key = position_of(rows[b].ring_block(block), k);
            for (int64_t q = 0; !any && q < count_rows(queries); ++q) {
              const int64_t query = position_of(queries, q);
              any = ids[b * length + key] != 0 &&
                    ids[b * length + key] == ids[b * length + query] &&
                    visible(layout.kind, layout.window, query, key);
            }
          }
          received[r] += any;
          sent[block] += any;
        }
      }
    }
    for (int r = 0; r < ring; ++r) {
      const int64_t element = layout.row_elements(0);
      ASSERT_EQ(bytes_sent(forward_schedule(layout, r, 0)), sent[r] * element * 2) << trial;
      ASSERT_EQ(bytes_sent(backward_schedule(layout, r, 0)),
                received[r] * element * 4 + (layout.outer_gather ? 0 : sent[r] * element * 2));
      ASSERT_EQ(sent_bytes(layout, r, 0).untrimmed, sent_bytes(one, r, 0).untrimmed);
      saved += sent_bytes(one, r, 0).needed - sent_bytes(layout, r, 0).needed;
    }
  }
  EXPECT_GT(saved, 0);
}

// A layout that does not follow documents has one list, whatever they are.
TEST(Schedule, DocumentsThatAreOnlyMaskedChangeNothing) {
  const AttentionLayout layout = make_layout(4, 2, false, 64, PlacementKind::kDualChunkSwap);
  std::vector<int32_t> ids(3 * 64);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i / 8 % 8);
  const AttentionLayout batch = of_batch(layout, ids);
  EXPECT_EQ(bytes_sent(forward_schedule(batch, 1, 1)), bytes_sent(forward_schedule(layout, 1, 1)));
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
                layout = of_batch(layout, segments);
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

// Sanitizers make a layout ten times as slow.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kRandomLayouts = 400;
#else
constexpr int kRandomLayouts = 4000;
#endif

// Thousands of layouts that nobody chose: up to 64 ranks, fewer tokens than ranks, any heads, half
// of them with documents.
TEST(Checker, ProvesRandomLayouts) {
  const Random random(11, 1);
  uint64_t next = 0;
  const auto draw = [&](int64_t most) {
    return static_cast<int64_t>(random.integer(next++, static_cast<uint64_t>(most)));
  };
  for (int trial = 0; trial < kRandomLayouts; ++trial) {
    // Most are small, so that there are many.
    const int64_t ranks = 1 + draw(trial % 20 == 0 ? 64 : 12);
    const int ulysses = static_cast<int>(1 + draw(ranks));
    const int ring = static_cast<int>(ranks / ulysses);
    const int64_t kv_heads = 1 + draw(6);
    const auto placement = static_cast<PlacementKind>(draw(4));
    const int64_t length = draw(2) == 0 ? draw(ranks + 1) : draw(200);
    AttentionLayout layout{Placement(placement, length, ring, ulysses),
                           HeadMap(kv_heads * (1 + draw(4)), kv_heads, ulysses)};
    layout.outer_gather = draw(2) == 0;
    layout.batch = 1 + draw(3);
    layout.head_size = 1 + draw(8);
    layout.element_bytes = draw(2) == 0 ? 2 : 4;
    layout.kind = static_cast<MaskKind>(draw(4));
    layout.window = 1 + draw(length + 2);
    layout.hops_at_once = static_cast<int>(1 + draw(4));
    layout.segmented = draw(2) == 0;
    if (draw(4) > 0) {
      layout = of_batch(layout, random_segments(layout.batch * length, 1 + draw(30), draw));
    }
    ASSERT_EQ(find_fault(layout), "")
        << "trial " << trial << ": " << ring << "x" << ulysses << " S " << length << " "
        << name_of(placement) << " " << name_of(layout.kind) << " window " << layout.window;
  }
}

using Lists = std::vector<std::vector<std::vector<Step>>>;

Lists all_lists(const AttentionLayout& layout, Direction direction) {
  Lists steps(layout.ring_size());
  for (int r = 0; r < layout.ring_size(); ++r) {
    for (int u = 0; u < layout.ulysses_size(); ++u) {
      steps[r].push_back(direction == Direction::kForward ? forward_schedule(layout, r, u)
                                                          : backward_schedule(layout, r, u));
    }
  }
  return steps;
}

// Breaks one list of a right schedule and returns what the checker says.
std::string fault_after(const AttentionLayout& layout, Direction direction,
                        const std::function<void(std::vector<Step>&)>& damage) {
  Lists steps = all_lists(layout, direction);
  damage(steps[1][0]);
  return find_fault(layout, direction, steps);
}

std::vector<Step>::iterator find_step(std::vector<Step>& steps, StepKind kind) {
  return std::find_if(steps.begin(), steps.end(), [&](const Step& s) { return s.kind == kind; });
}

TEST(Checker, FindsEveryKindOfDamage) {
  const AttentionLayout layout = one_by_one(make_layout(4, 2));
  const auto without = [&](StepKind kind) {
    return [kind](std::vector<Step>& steps) { steps.erase(find_step(steps, kind)); };
  };
  const auto change = [&](StepKind kind, const std::function<void(Step&)>& edit) {
    return [kind, edit](std::vector<Step>& steps) { edit(*find_step(steps, kind)); };
  };
  using enum Direction;
  using enum StepKind;
  using testing::HasSubstr;
  const auto expect = [&](Direction direction,
                          const std::function<void(std::vector<Step>&)>& damage,
                          const char* words) {
    EXPECT_THAT(fault_after(layout, direction, damage), HasSubstr(words));
  };
  expect(kForward, without(kAttend), "does not attend to all");
  expect(kForward, without(kShift), "has not started");
  expect(kForward, without(kAwaitShift), "while a whole group is under way");
  expect(kForward, without(kExchangeOut), "waits for ever");
  expect(kBackward, without(kAwaitGradient), "while a whole group is under way");
  expect(kBackward, without(kShiftGradient), "has not started");
  expect(
      kForward, [](auto& s) { s.push_back(*find_step(s, kAttend)); }, "twice");
  expect(kForward, change(kShift, [](Step& s) { s.bytes_sent += 1; }), "bytes");
  expect(kForward, change(kAttend, [](Step& s) { s.pairs += 1; }), "pairs");
  expect(kForward, change(kExchangeIn, [](Step& s) { s.bytes_sent += 1; }), "the group sends");
  // The wrong peer: one waits for what never comes, or takes what is not meant for it.
  expect(kForward, change(kShift, [](Step& s) { s.to = 3; }), "");
  expect(kForward, change(kShift, [](Step& s) { std::swap(s.to, s.from); }), "");
  expect(kForward, change(kShift, [](Step& s) { s.to = 1; }), "a wrong one");
  // Fewer rows than are seen, with the right bytes for them.
  const auto drop_row = [&](Step& s) {
    s.rows.back().count -= 1;
    s.bytes_sent -= layout.row_elements(0) * layout.element_bytes;
  };
  expect(kForward, change(kShift, drop_row), "is sent");
  const AttentionLayout swapped = make_layout(4, 2, false, 64, PlacementKind::kDualChunkSwap);
  EXPECT_THAT(fault_after(swapped, kForward, change(kShift, drop_row)), HasSubstr("is sent"));
  // A row in two pieces has to be put together, and nobody has room for that here.
  expect(kForward,
         change(kShift,
                [](Step& s) {
                  s.rows = {{0, 7}, {7, 9}};
                }),
         "do not fit in their buffer");
  expect(kForward, change(kAttend, [](Step& s) { s.rows.back().count -= 1; }),
         "rows it does not have");
  expect(kBackward, change(kShiftGradient, [](Step& s) { s.to = 2; }), "");
}

// Not a list of faults that someone thought of: every step of every rank is lost, doubled or moved,
// and the checker must always see it.
TEST(Checker, SeesEveryLostDoubledAndMisledStep) {
  for (bool gather : {false, true}) {
    for (auto placement : {PlacementKind::kContiguous, PlacementKind::kDualChunkSwap}) {
      AttentionLayout layout = make_layout(3, 2, gather, 24, placement);
      layout.hops_at_once = placement == PlacementKind::kContiguous ? 1 : 2;
      for (Direction direction : {Direction::kForward, Direction::kBackward}) {
        const Lists right = all_lists(layout, direction);
        ASSERT_EQ(find_fault(layout, direction, right), "");
        for (size_t r = 0; r < 3; ++r) {
          for (size_t i = 0; i < right[r][0].size(); ++i) {
            const auto expect_fault = [&](const char* damage,
                                          const std::function<void(std::vector<Step>&)>& edit) {
              Lists wrong = right;
              edit(wrong[r][0]);
              EXPECT_NE(find_fault(layout, direction, wrong), "")
                  << damage << " step " << i << " (" << name_of(right[r][0][i].kind)
                  << ") of ring rank " << r << " gather " << gather;
            };
            expect_fault("lost", [&](auto& s) { s.erase(s.begin() + static_cast<int64_t>(i)); });
            expect_fault("doubled", [&](auto& s) {
              const Step twin = s[i];
              s.insert(s.begin() + static_cast<int64_t>(i), twin);
            });
            if (right[r][0][i].bytes_sent == 0) continue;
            expect_fault("shortened", [&](auto& s) { s[i].bytes_sent -= 2; });
            if (right[r][0][i].to < 0) continue;
            expect_fault("misled", [&](auto& s) { s[i].to = (s[i].to + 1) % 3; });
          }
        }
      }
    }
  }
}

// Everybody sends before anybody receives is fine for buffered sends only; here two ranks wait for
// each other's transfer of another hop.
TEST(Checker, SeesADeadlock) {
  const AttentionLayout layout = [] {
    AttentionLayout full = one_by_one(make_layout(3, 1));
    full.kind = MaskKind::kFull;
    return full;
  }();
  Lists steps = all_lists(layout, Direction::kForward);
  // Rank 1 does hop 2 first.
  std::vector<Step>& list = steps[1][0];
  std::vector<size_t> shifts;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].kind == StepKind::kShift || list[i].kind == StepKind::kAwaitShift)
      shifts.push_back(i);
  }
  ASSERT_EQ(shifts.size(), 4u);
  std::swap(list[shifts[0]], list[shifts[2]]);
  std::swap(list[shifts[1]], list[shifts[3]]);
  const auto attends = [](const Step& s) { return s.kind == StepKind::kAttend; };
  const auto first =
      std::find_if(list.begin() + static_cast<int64_t>(shifts[1]), list.end(), attends);
  std::swap(*first, *std::find_if(first + 1, list.end(), attends));
  EXPECT_THAT(find_fault(layout, Direction::kForward, steps), testing::HasSubstr("waits for ever"));
}

// Nothing grows with the product of ranks: one list of 4,096 ranks takes steps, not minutes.
TEST(Schedule, OneListOfManyRanksIsLinear) {
  for (auto placement :
       {PlacementKind::kContiguous, PlacementKind::kDualChunkSwap, PlacementKind::kStriped}) {
    const AttentionLayout layout = make_layout(4096, 1, false, 1 << 20, placement);
    const std::vector<Step> steps = backward_schedule(layout, 4095, 0);
    EXPECT_GE(steps.size(), 4096u);
    EXPECT_LE(steps.size(), 5u * 4096u);
  }
}

}  // namespace
}  // namespace odyssey
