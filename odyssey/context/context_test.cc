// SPDX-License-Identifier: Apache-2.0
// Attention over thread ranks against dense fp64 attention, for every strategy, placement and mask.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <mutex>
#include <new>
#include <optional>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "odyssey/base/parallel_for.h"
#include "odyssey/base/random.h"
#include "odyssey/comm/barrier.h"
#include "odyssey/comm/mesh.h"
#include "odyssey/comm/thread_group.h"
#include "odyssey/context/parallel_attention.h"
#include "odyssey/kernels/dense_attention.h"

namespace odyssey {
namespace {

// The largest piece of memory that operator new gave since it was set to 0.
std::atomic<size_t> largest_allocation{0};

struct Case {
  int64_t length = 48, query_heads = 12, kv_heads = 4, head_size = 16, batch = 1;
  MaskKind kind = MaskKind::kCausal;
  int64_t window = 1;
  double soft_cap = 0;
  std::vector<int32_t> segments = {};          // [B, S]
  std::vector<int32_t> earlier_segments = {};  // of a batch before this one
  PlacementKind placement = PlacementKind::kContiguous;
  int ring = 1, ulysses = 1;
  bool gather = false;
  bool sinks = false;
  int hops_at_once = 2;
  bool segmented = true;                      // transfers follow the segments too
  std::optional<MaskRule> earlier_mask = {};  // of a call of the same object before this one
  bool operator==(const Case&) const = default;

  std::string name() const {
    return fmt::format("S={} H={} K={} B={} {} {} {}x{}{}{}", length, query_heads, kv_heads, batch,
                       name_of(kind), name_of(placement), ring, ulysses, gather ? " gather" : "",
                       segmented ? "" : " masked only");
  }
};

std::vector<float> normal(int64_t size, uint64_t stream) {
  std::vector<float> x(size);
  const Random random(3, stream);
  for (int64_t i = 0; i < size; ++i) x[i] = static_cast<float>(random.normal(i));
  return x;
}

// Whole tensors in natural order: inputs, and room for what the ranks bring back.
struct Whole {
  std::vector<float> q, k, v, dout, sinks;
  std::vector<double> out, dq, dk, dv, lse, dsinks, max_logits;
  std::vector<Traffic> traffic;

  explicit Whole(const Case& c)
      : q(normal(c.batch * c.length * c.query_heads * c.head_size, 1)),
        k(normal(c.batch * c.length * c.kv_heads * c.head_size, 2)),
        v(normal(k.size(), 3)),
        dout(normal(q.size(), 4)) {
    if (c.sinks) sinks = normal(c.query_heads, 5);
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    out.assign(q.size(), kNan);
    dq.assign(q.size(), kNan);
    dk.assign(k.size(), kNan);
    dv.assign(k.size(), kNan);
    lse.assign(c.batch * c.query_heads * c.length, kNan);
    dsinks.assign(sinks.size(), 0);
    max_logits.assign(c.query_heads, -std::numeric_limits<double>::infinity());
  }
};

// Where the rows of one rank sit, for each batch row.
using Rows = std::vector<std::vector<Run>>;

// The rows of one rank of a natural tensor [B, S, X], and back.
template <class T>
std::vector<T> take(const std::vector<float>& whole, const Case& c, const Rows& rows) {
  std::vector<T> part;
  const int64_t width = static_cast<int64_t>(whole.size()) / (c.batch * c.length);
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t row = 0; row < count_rows(rows[b]); ++row) {
      const int64_t at = (b * c.length + position_of(rows[b], row)) * width;
      for (int64_t x = 0; x < width; ++x) part.push_back(T(whole[at + x]));
    }
  }
  return part;
}

template <class T>
void give(const std::vector<T>& part, const Case& c, const Rows& rows, std::vector<double>& whole) {
  const int64_t width = static_cast<int64_t>(whole.size()) / (c.batch * c.length);
  size_t next = 0;
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t row = 0; row < count_rows(rows[b]); ++row) {
      const int64_t at = (b * c.length + position_of(rows[b], row)) * width;
      for (int64_t x = 0; x < width; ++x) whole[at + x] = to_float(part[next++]);
    }
  }
}

template <class T>
void run_rank(const Case& c, Group& world, Whole& whole, std::mutex& mutex) {
  Mesh mesh(world, 1, 1, c.ring, c.ulysses);
  AttentionLayout layout{Placement(c.placement, c.length, c.ring, c.ulysses),
                         HeadMap(c.query_heads, c.kv_heads, c.ulysses)};
  layout.outer_gather = c.gather;
  layout.batch = c.batch;
  layout.head_size = c.head_size;
  layout.element_bytes = sizeof(T);
  layout.kind = c.kind;
  layout.window = c.window;
  layout.segmented = c.segmented;
  layout.hops_at_once = c.hops_at_once;
  const int r = mesh.ring_index(), u = mesh.ulysses_index();
  ParallelAttentionOptions options;
  options.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.head_size)));
  options.soft_cap = static_cast<float>(c.soft_cap);
  options.record_max_logits = true;
  if (c.earlier_mask) options.masks = {*c.earlier_mask, {c.kind, c.window}};
  ParallelAttention<T> attention(layout, options, mesh.ring(), mesh.ulysses());
  attention.set_segments(c.earlier_segments);
  attention.set_segments(c.segments);

  Rows runs, blocks;
  layout = of_batch(layout, c.segments);
  for (const Placement& row : row_placements(layout.placement, c.batch, c.segments)) {
    runs.push_back(row.local_rows(r, u));
    blocks.push_back(row.ring_block(r));
  }
  const int64_t rows = layout.placement.local_count(r, u);
  std::vector<T> q = take<T>(whole.q, c, runs), k = take<T>(whole.k, c, runs),
                 v = take<T>(whole.v, c, runs), dout = take<T>(whole.dout, c, runs);
  // Results must not depend on what was there before.
  const T old(std::numeric_limits<float>::quiet_NaN());
  std::vector<T> out(q.size(), old), dq(q.size(), old), dk(k.size(), old), dv(k.size(), old);
  const auto query = [&](std::vector<T>& x) {
    return View<T, 4>(x.data(), {c.batch, rows, c.query_heads, c.head_size});
  };
  const auto key = [&](std::vector<T>& x) {
    return View<T, 4>(x.data(), {c.batch, rows, c.kv_heads, c.head_size});
  };
  // Twice: the second call must not see anything of the first, which may have had another mask.
  attention.use_sinks(whole.sinks);
  int64_t bytes = 0;
  for (int call = 0; call < 2; ++call) {
    const bool other = call == 0 && c.earlier_mask;
    if (c.earlier_mask) attention.use_mask(other ? 0 : 1);
    attention.forward(query(q), key(k), key(v), query(out));
    attention.backward(query(dout), query(dq), key(dk), key(dv));
    bytes += sent_bytes(other ? with_mask(layout, *c.earlier_mask) : layout, r, u).needed;
  }
  EXPECT_EQ(mesh.ring().traffic().bytes_sent + mesh.ulysses().traffic().bytes_sent, bytes);

  const std::lock_guard lock(mutex);
  give(out, c, runs, whole.out);
  give(dq, c, runs, whole.dq);
  give(dk, c, runs, whole.dk);
  give(dv, c, runs, whole.dv);
  const View<const float, 3> lse = attention.lse();
  for (int64_t h = 0; h < lse.extent(1); ++h) {
    const int64_t head = attention.first_head() + h;
    whole.max_logits[head] = std::max(whole.max_logits[head], double{attention.max_logits()[h]});
    if (c.sinks) whole.dsinks[head] += double{attention.dsinks()[h]};
    for (int64_t b = 0; b < c.batch; ++b) {
      for (int64_t row = 0; row < lse.extent(2); ++row) {
        whole.lse[(b * c.query_heads + head) * c.length + position_of(blocks[b], row)] =
            double{lse(b, h, row)};
      }
    }
  }
}

void compare(const std::vector<double>& got, const double* expected, double tolerance,
             const char* what) {
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i]) continue;
    const double e = std::abs(got[i] - expected[i]) / (tolerance * (1 + std::abs(expected[i])));
    worst = std::max(worst, std::isnan(e) ? std::numeric_limits<double>::infinity() : e);
  }
  EXPECT_LE(worst, 1) << what;
}

DenseAttentionOutput dense_row(const Case& c, const Whole& whole, int64_t b) {
  DenseAttentionInput in;
  in.sequence_length = c.length;
  in.query_heads = c.query_heads;
  in.kv_heads = c.kv_heads;
  in.head_size = c.head_size;
  const auto row = [&](const std::vector<float>& x) {
    const size_t width = x.size() / c.batch;
    return std::span(x).subspan(b * width, width);
  };
  in.q = row(whole.q);
  in.k = row(whole.k);
  in.v = row(whole.v);
  in.dout = row(whole.dout);
  in.sinks = whole.sinks;
  if (!c.segments.empty()) in.segments = std::span(c.segments).subspan(b * c.length, c.length);
  in.kind = c.kind;
  in.window = c.window;
  in.scale = 1 / std::sqrt(static_cast<double>(c.head_size));
  in.soft_cap = c.soft_cap;
  return dense_attention(in);
}

// Dense attention of each batch row. The last result is kept: it does not depend on the layout.
const std::vector<DenseAttentionOutput>& dense_rows(const Case& c, const Whole& whole) {
  static Case last;
  static std::vector<DenseAttentionOutput> rows;
  Case key = c;
  key.placement = PlacementKind::kContiguous;
  key.ring = key.ulysses = 1;
  key.gather = false;
  key.segmented = true;
  key.hops_at_once = 2;
  key.earlier_segments = {};
  key.earlier_mask = {};
  if (!rows.empty() && key == last) return rows;
  last = key;
  rows.clear();
  for (int64_t b = 0; b < c.batch; ++b) rows.push_back(dense_row(c, whole, b));
  return rows;
}

template <class T>
void check(const Case& c, double tolerance = 1e-5) {
  SCOPED_TRACE(c.name());
  Whole whole(c);
  std::mutex mutex;
  run_on_threads(c.ring * c.ulysses, [&](Group& world) { run_rank<T>(c, world, whole, mutex); });
  std::vector<double> max_logits(c.query_heads, -std::numeric_limits<double>::infinity());
  std::vector<double> dsinks(whole.sinks.size());
  const std::vector<DenseAttentionOutput>& rows = dense_rows(c, whole);
  for (int64_t b = 0; b < c.batch; ++b) {
    const DenseAttentionOutput& expected = rows[b];
    const auto part = [&](const std::vector<double>& x) {
      const auto width = static_cast<int64_t>(x.size()) / c.batch;
      return std::vector<double>(x.begin() + b * width, x.begin() + (b + 1) * width);
    };
    compare(part(whole.out), expected.out.data(), tolerance, "out");
    compare(part(whole.lse), expected.lse.data(), tolerance, "lse");
    compare(part(whole.dq), expected.dq.data(), tolerance, "dq");
    compare(part(whole.dk), expected.dk.data(), tolerance, "dk");
    compare(part(whole.dv), expected.dv.data(), tolerance, "dv");
    for (int64_t h = 0; h < c.query_heads; ++h)
      max_logits[h] = std::max(max_logits[h], expected.max_logits[h]);
    for (size_t h = 0; h < dsinks.size(); ++h) dsinks[h] += expected.dsinks[h];
  }
  compare(whole.max_logits, max_logits.data(), tolerance, "max_logits");
  compare(whole.dsinks, dsinks.data(), tolerance, "dsinks");
}

std::vector<int32_t> documents(const std::vector<int64_t>& lengths, int64_t total) {
  std::vector<int32_t> segments;
  int32_t id = 0;
  for (int64_t length : lengths) segments.insert(segments.end(), length, ++id);
  segments.resize(total, 0);
  return segments;
}

struct Shape {
  int ring, ulysses;
  bool gather;
};
constexpr Shape kShapes[] = {{1, 1, false}, {2, 1, false}, {3, 1, false}, {5, 1, false},
                             {4, 1, true},  {3, 1, true},  {1, 2, false}, {1, 4, false},
                             {2, 2, false}, {4, 2, false}, {2, 3, false}, {2, 2, true},
                             {3, 2, true}};
constexpr PlacementKind kPlacements[] = {PlacementKind::kContiguous, PlacementKind::kDualChunkSwap,
                                         PlacementKind::kStriped, PlacementKind::kPerDocument};

TEST(ParallelAttention, EqualsDenseForEveryStrategyPlacementAndMask) {
  for (MaskKind kind :
       {MaskKind::kCausal, MaskKind::kFull, MaskKind::kLocalSliding, MaskKind::kChunk}) {
    for (bool packed : {false, true}) {
      for (const Shape& shape : kShapes) {
        for (PlacementKind placement : kPlacements) {
          Case c;
          c.kind = kind;
          c.window = 10;
          c.placement = placement;
          c.ring = shape.ring;
          c.ulysses = shape.ulysses;
          c.gather = shape.gather;
          if (packed) c.segments = documents({1, 30, 9}, c.length);
          check<float>(c);
          if (!packed || placement == PlacementKind::kPerDocument) continue;
          c.segmented = false;
          check<float>(c);
        }
      }
    }
  }
}

TEST(ParallelAttention, AnyLengthAndAnyHeads) {
  for (int64_t length : {1, 2, 7, 30, 61}) {
    for (auto [h, k] :
         {std::pair<int64_t, int64_t>{8, 2}, {8, 1}, {9, 3}, {5, 1}, {6, 6}, {28, 7}}) {
      for (const Shape& shape : {Shape{1, 4, false}, {2, 2, false}, {3, 2, false}, {2, 3, true}}) {
        Case c;
        c.length = length;
        c.query_heads = h;
        c.kv_heads = k;
        c.head_size = 8;
        c.ring = shape.ring;
        c.ulysses = shape.ulysses;
        c.gather = shape.gather;
        c.placement = PlacementKind::kDualChunkSwap;
        check<float>(c);
      }
    }
  }
}

TEST(ParallelAttention, BatchRowsHaveTheirOwnDocuments) {
  for (const Shape& shape : kShapes) {
    Case c;
    c.batch = 3;
    c.segments = documents({1, 47}, 48);
    for (int32_t id : documents({20, 8, 11}, 48)) c.segments.push_back(id);
    for (int32_t id : documents({}, 48)) c.segments.push_back(id);  // a row of padding only
    c.ring = shape.ring;
    c.ulysses = shape.ulysses;
    c.gather = shape.gather;
    for (PlacementKind placement : {PlacementKind::kStriped, PlacementKind::kPerDocument}) {
      c.placement = placement;
      check<float>(c);
    }
    c.kind = MaskKind::kLocalSliding;
    c.window = 3;
    check<float>(c);
  }
}

// One object for layers of two masks: lists, rows and buffers of one call are not those of the
// other.
TEST(ParallelAttention, LayersMayHaveTheirOwnMasks) {
  constexpr MaskRule kMasks[] = {
      {MaskKind::kCausal, 0}, {MaskKind::kLocalSliding, 7}, {MaskKind::kChunk, 20}};
  for (const Shape& shape : {Shape{4, 1, false}, {4, 1, true}, {1, 2, false}, {3, 2, false}}) {
    for (PlacementKind placement : kPlacements) {
      for (const MaskRule& earlier : kMasks) {
        for (const MaskRule& mask : kMasks) {
          if (mask == earlier) continue;
          Case c;
          c.earlier_mask = earlier;
          c.kind = mask.kind;
          c.window = mask.window;
          c.sinks = true;
          c.placement = placement;
          c.ring = shape.ring;
          c.ulysses = shape.ulysses;
          c.gather = shape.gather;
          c.segments = documents({5, 28, 9}, c.length);
          check<float>(c);
        }
      }
    }
  }
}

// What one batch leaves behind must not reach the next, which sits elsewhere.
TEST(ParallelAttention, DocumentsMayChangeFromCallToCall) {
  for (const Shape& shape : kShapes) {
    Case c;
    c.ring = shape.ring;
    c.ulysses = shape.ulysses;
    c.gather = shape.gather;
    for (MaskKind kind : {MaskKind::kCausal, MaskKind::kLocalSliding}) {
      for (PlacementKind placement : kPlacements) {
        c.placement = placement;
        c.kind = kind;
        c.window = 4;
        c.earlier_segments = documents({40, 3, 3}, c.length);
        c.segments = documents({2, 5, 9, 9, 20}, c.length);
        check<float>(c);
        c.segments = {};
        check<float>(c);
      }
    }
  }
}

// Ids need not ascend, and one that comes again sees its earlier rows.
TEST(ParallelAttention, ADocumentMayComeInParts) {
  for (const Shape& shape : kShapes) {
    for (PlacementKind placement : kPlacements) {
      Case c;
      c.ring = shape.ring;
      c.ulysses = shape.ulysses;
      c.gather = shape.gather;
      c.placement = placement;
      for (int64_t i = 0; i < c.length; ++i) {
        constexpr int32_t kIds[] = {7, 2, 0, 7, 9, 2};
        c.segments.push_back(kIds[i / 8]);
      }
      check<float>(c);
    }
  }
}

// Documents that end where blocks do: nobody needs anything of anybody.
TEST(ParallelAttention, RanksThatShareNoDocumentSendNothing) {
  for (bool gather : {false, true}) {
    Case c;
    c.ring = 4;
    c.gather = gather;
    c.segments = documents({12, 12, 12, 12}, c.length);
    check<float>(c);
    AttentionLayout layout{Placement(c.placement, c.length, c.ring, 1), HeadMap(12, 4, 1), gather};
    layout.segmented = true;
    layout = of_batch(layout, c.segments);
    for (int r = 0; r < 4; ++r) EXPECT_EQ(sent_bytes(layout, r, 0).needed, 0);
  }
}

TEST(ParallelAttention, RanksThatHoldOnlyPaddingOrNothing) {
  for (PlacementKind placement : kPlacements) {
    for (bool gather : {false, true}) {
      Case c{.length = 16, .query_heads = 2, .kv_heads = 1, .head_size = 8};
      c.segments = documents({5}, 16);
      c.placement = placement;
      c.ring = 4;
      c.gather = gather;
      check<float>(c);
      c.length = 3;  // fewer tokens than ranks
      c.segments = {};
      check<float>(c);
    }
  }
}

TEST(ParallelAttention, EveryWindowIsKept) {
  for (const Shape& shape : {Shape{4, 1, false}, {4, 1, true}, {2, 2, false}}) {
    for (PlacementKind placement : {PlacementKind::kContiguous, PlacementKind::kDualChunkSwap}) {
      for (int64_t window : {1, 4, 8, 9, 31, 40}) {
        Case c{.length = 32, .query_heads = 8, .kv_heads = 2, .head_size = 24};
        c.kind = MaskKind::kLocalSliding;
        c.window = window;
        c.placement = placement;
        c.ring = shape.ring;
        c.ulysses = shape.ulysses;
        c.gather = shape.gather;
        check<float>(c);
      }
    }
  }
}

// The whole result of a call, in natural order.
template <class T = float>
Whole whole_result(const Case& c, const std::function<void(Whole&)>& change) {
  Whole whole(c);
  change(whole);
  std::mutex mutex;
  run_on_threads(c.ring * c.ulysses, [&](Group& world) { run_rank<T>(c, world, whole, mutex); });
  return whole;
}

// Scores of two blocks so far apart that exp of their difference is more than fp32 holds: forward
// and backward, whichever block comes first.
template <class T>
void check_far_apart(double tolerance, double tolerance_of_dq) {
  for (const Shape& shape : {Shape{2, 1, false}, {2, 1, true}, {4, 1, false}, {2, 2, false}}) {
    for (auto [first, second] : {std::pair{-20.0f, 120.0f}, {120.0f, -20.0f}, {0.0f, 90.0f}}) {
      Case c{.length = 8, .query_heads = 2, .kv_heads = 2, .head_size = 4, .kind = MaskKind::kFull};
      c.ring = shape.ring;
      c.ulysses = shape.ulysses;
      c.gather = shape.gather;
      SCOPED_TRACE(fmt::format("{} {} {}", c.name(), first, second));
      const Whole whole = whole_result<T>(c, [&](Whole& w) {
        for (size_t i = 0; i < w.q.size(); ++i) {
          w.q[i] = i % 4 == 0 ? 2 : 0;  // the scale is 1/2
          w.k[i] = i % 4 == 0 ? (i < w.k.size() / 2 ? first : second) : 0;
          w.v[i] = to_float(bf16(w.v[i]));
          w.dout[i] = to_float(bf16(w.dout[i]));
        }
      });
      const DenseAttentionOutput expected = dense_row(c, whole, 0);
      for (double lse : whole.lse) EXPECT_NEAR(lse, std::max(first, second) + std::log(4), 1e-4);
      compare(whole.out, expected.out.data(), tolerance, "out");
      compare(whole.dv, expected.dv.data(), tolerance, "dv");
      compare(whole.dk, expected.dk.data(), tolerance, "dk");
      compare(whole.dq, expected.dq.data(), tolerance_of_dq, "dq");  // keys are large
    }
  }
}

TEST(ParallelAttention, FarApartLogitsDoNotOverflow) {
  check_far_apart<float>(1e-5, 1e-3);
  check_far_apart<bf16>(4e-2, 2);
}

TEST(ParallelAttention, ADocumentDoesNotNoticeAnother) {
  for (const Shape& shape : {Shape{3, 1, false}, {3, 1, true}, {1, 4, false}, {2, 2, false}}) {
    for (PlacementKind placement : {PlacementKind::kDualChunkSwap, PlacementKind::kPerDocument}) {
      Case c;
      c.segments = documents({1, 47}, c.length);
      c.placement = placement;
      c.ring = shape.ring;
      c.ulysses = shape.ulysses;
      c.gather = shape.gather;
      SCOPED_TRACE(c.name());
      const Whole before = whole_result(c, [](Whole&) {});
      const Whole after = whole_result(c, [&](Whole& whole) {  // token 0, the first document
        for (int64_t i = 0; i < c.kv_heads * c.head_size; ++i) {
          whole.k[i] += 5;
          whole.v[i] -= 3;
        }
      });
      const int64_t first = c.query_heads * c.head_size;
      EXPECT_NE(after.out[0], before.out[0]);
      EXPECT_TRUE(
          std::equal(before.out.begin() + first, before.out.end(), after.out.begin() + first));
      EXPECT_TRUE(std::equal(before.dq.begin() + first, before.dq.end(), after.dq.begin() + first));
    }
  }
}

TEST(ParallelAttention, SoftCapAndSinks) {
  for (const Shape& shape : kShapes) {
    Case c;
    c.soft_cap = 2;
    c.ring = shape.ring;
    c.ulysses = shape.ulysses;
    c.gather = shape.gather;
    c.sinks = true;
    c.segments = documents({9, 20}, c.length);
    check<float>(c);
  }
}

TEST(ParallelAttention, Bf16StaysNearDense) {
  for (const Shape& shape : kShapes) {
    Case c;
    c.ring = shape.ring;
    c.ulysses = shape.ulysses;
    c.gather = shape.gather;
    check<bf16>(c, 4e-2);
  }
}

// Rank counts that divide nothing, fewer tokens than ranks, and every feature at once.
TEST(ParallelAttention, EveryFeatureInEveryStrategyOnOddRanks) {
  for (MaskKind kind : {MaskKind::kCausal, MaskKind::kLocalSliding, MaskKind::kChunk}) {
    for (int64_t length : {5, 67}) {
      for (const Shape& shape :
           {Shape{3, 1, false}, Shape{5, 1, false}, Shape{7, 1, false}, Shape{7, 1, true},
            Shape{1, 5, false}, Shape{3, 2, false}, Shape{2, 3, true}}) {
        for (PlacementKind placement : kPlacements) {
          Case c;
          c.length = length;
          c.query_heads = 6;
          c.kv_heads = 3;
          c.head_size = 8;
          c.batch = 2;
          c.kind = kind;
          c.window = length / 4 + 1;
          c.soft_cap = 2;
          c.sinks = true;
          c.segments = documents({1, length / 2}, length);
          for (int32_t id : documents({length / 3, 1, length / 4}, length))
            c.segments.push_back(id);
          c.placement = placement;
          c.ring = shape.ring;
          c.ulysses = shape.ulysses;
          c.gather = shape.gather;
          for (int hops : {1, 2, 3}) {
            c.hops_at_once = hops;
            check<float>(c);
          }
        }
      }
    }
  }
}

// 64 ranks, each with 64 of 4096 tokens; small heads, so that the dense fp64 oracle takes seconds.
TEST(ParallelAttention, SixtyFourRanks) {
  for (const Shape& shape : {Shape{16, 4, false}, Shape{8, 8, false}, Shape{32, 2, false},
                             Shape{64, 1, false}, Shape{64, 1, true}}) {
    Case c;
    c.length = 4096;
    c.query_heads = 8;
    c.kv_heads = 2;
    c.head_size = 4;
    c.placement = PlacementKind::kDualChunkSwap;
    c.segments = documents({1000, 1, 2500}, c.length);
    c.ring = shape.ring;
    c.ulysses = shape.ulysses;
    c.gather = shape.gather;
    check<float>(c);
  }
}

// What an object takes it takes when it is made, and as much as it announced. A call allocates
// requests and short lists only, however large the tensors.
TEST(ParallelAttention, ACallTakesNoMemoryForTensors) {
  for (const Shape& shape : {Shape{4, 1, false}, Shape{4, 1, true}, Shape{2, 2, false}}) {
    const int64_t before = buffer_bytes_alive();
    run_on_threads(4, [&](Group& world) {
      set_thread_count(1);  // a thread makes its scratch at its first item, in whatever call
      Mesh mesh(world, 1, 1, shape.ring, shape.ulysses);
      constexpr int64_t kLength = 2048, kHeads = 4, kSize = 32;
      AttentionLayout layout{
          Placement(PlacementKind::kDualChunkSwap, kLength, shape.ring, shape.ulysses),
          HeadMap(kHeads, kHeads, shape.ulysses)};
      layout.outer_gather = shape.gather;
      layout.head_size = kSize;
      barrier(world);
      ParallelAttention<float> attention(layout, {}, mesh.ring(), mesh.ulysses());
      barrier(world);
      const RowsAtOnce at_once = most_rows_at_once(layout);
      const auto need = static_cast<double>(
          4 * (ParallelAttention<float>::workspace_bytes(layout) -
               attention_scratch_bytes(at_once.forward, at_once.backward, kSize)));
      // The ranks of dual_chunk_swap differ: rank 0 is sent whole blocks, rank 3 halves.
      const double share = static_cast<double>(buffer_bytes_alive() - before) / need;
      EXPECT_LE(share, 1.0);
      EXPECT_GE(share, 0.85);
      barrier(world);
      const int64_t rows = layout.placement.local_count(mesh.ring_index(), mesh.ulysses_index());
      std::vector<float> x = normal(rows * kHeads * kSize, 1), out(x.size()), dq(x.size()),
                         dk(x.size()), dv(x.size());
      const auto view = [&](std::vector<float>& of) {
        return View<float, 4>(of.data(), {1, rows, kHeads, kSize});
      };
      const auto step = [&] {
        attention.forward(view(x), view(x), view(x), view(out));
        attention.backward(view(out), view(dq), view(dk), view(dv));
      };
      step();
      barrier(world);
      const int64_t alive = buffer_bytes_alive();
      barrier(world);
      largest_allocation = 0;
      barrier(world);
      step();
      barrier(world);
      EXPECT_LE(largest_allocation, 8192u);  // a tensor of this rank has 256 KiB
      EXPECT_EQ(buffer_bytes_alive(), alive);
      barrier(world);
    });
  }
}

}  // namespace
}  // namespace odyssey

// Sees the sizes of all allocations of this test program. Sanitizers bring their own operator new;
// with them only the buffers are watched.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Not inlined: GCC then takes malloc and delete for a wrong pair.
[[gnu::noinline]] void* operator new(size_t size) {
  size_t largest = odyssey::largest_allocation;
  while (size > largest && !odyssey::largest_allocation.compare_exchange_weak(largest, size)) {
  }
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
#endif
