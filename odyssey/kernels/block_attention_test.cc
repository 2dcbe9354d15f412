// SPDX-License-Identifier: Apache-2.0
// Block attention under every instruction set against dense fp64 attention.
#include "odyssey/kernels/block_attention.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "odyssey/base/buffer.h"
#include "odyssey/base/parallel_for.h"
#include "odyssey/base/random.h"
#include "odyssey/kernels/dense_attention.h"
#include "odyssey/kernels/isa.h"
#include "odyssey/sequence/placement.h"
#include "odyssey/sequence/shard.h"

namespace odyssey {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Case {
  int64_t sequence_length = 64, query_heads = 4, kv_heads = 2, head_size = 16;
  MaskKind kind = MaskKind::kCausal;
  int64_t window = 1;
  double soft_cap = 0;
  std::vector<int32_t> segments = {};
  PlacementKind placement = PlacementKind::kContiguous;
  int blocks = 1;
  float gain = 1;
  bool sinks = false;
  bool rounded = false;  // inputs are bf16 numbers, so that only the computation itself errs
};

// fp32 tensors in natural order, surrounded by NaN so that reading outside shows.
struct Tensors {
  std::vector<float> q, k, v, dout, sinks;

  explicit Tensors(const Case& c) {
    const auto fill = [&](std::vector<float>& x, int64_t size, uint64_t stream, float gain) {
      const Random random(5, stream);
      x.resize(size);
      for (int64_t i = 0; i < size; ++i) {
        x[i] = gain * static_cast<float>(random.normal(i));
        if (c.rounded) x[i] = to_float(bf16(x[i]));
      }
    };
    fill(q, c.sequence_length * c.query_heads * c.head_size, 1, c.gain);
    fill(k, c.sequence_length * c.kv_heads * c.head_size, 2, c.gain);
    fill(v, c.sequence_length * c.kv_heads * c.head_size, 3, 1);
    fill(dout, q.size(), 4, 1);
    if (c.sinks) fill(sinks, c.query_heads, 5, 2);
  }
};

DenseAttentionOutput dense(const Case& c, const Tensors& t) {
  DenseAttentionInput in;
  in.sequence_length = c.sequence_length;
  in.query_heads = c.query_heads;
  in.kv_heads = c.kv_heads;
  in.head_size = c.head_size;
  in.q = t.q;
  in.k = t.k;
  in.v = t.v;
  in.dout = t.dout;
  in.segments = c.segments;
  in.sinks = t.sinks;
  in.kind = c.kind;
  in.window = c.window;
  in.scale = 1 / std::sqrt(static_cast<double>(c.head_size));
  in.soft_cap = c.soft_cap;
  return dense_attention(in);
}

// One block of rows in storage order. The buffer has a NaN-filled row on either side, and rows are
// longer than needed with NaN in the gap.
template <class T>
class Rows {
 public:
  Rows(std::span<const Run> runs, int64_t heads, int64_t head_size,
       const std::vector<float>& natural)
      : count_(count_rows(runs)), heads_(heads), size_(head_size), row_(heads * head_size + 5) {
    data_.assign((count_ + 2) * row_, T(kNan));
    int64_t row = 0;
    for (const Run& run : runs) {
      for (int64_t i = 0; i < run.count; ++i, ++row) {
        const int64_t position = run.first + i * run.stride;
        for (int64_t x = 0; x < heads * head_size; ++x) {
          const float value = natural.empty() ? 0 : natural[position * heads * head_size + x];
          data_[(row + 1) * row_ + x] = T(value);
        }
      }
    }
  }
  View<T, 3> view() { return {data_.data() + row_, {count_, heads_, size_}, {row_, size_, 1}}; }
  bool frame_is_intact() const {
    for (int64_t i = 0; i < static_cast<int64_t>(data_.size()); ++i) {
      const int64_t row = i / row_ - 1, x = i % row_;
      const bool inside = row >= 0 && row < count_ && x < heads_ * size_;
      if (!inside && !std::isnan(to_float(data_[i]))) return false;
    }
    return true;
  }

 private:
  int64_t count_, heads_, size_, row_;
  std::vector<T> data_;
};

double error(double value, double expected, double tolerance) {
  if (value == expected) return 0;  // also both -inf
  const double excess = std::abs(value - expected) / (tolerance + tolerance * std::abs(expected));
  return std::isnan(excess) ? std::numeric_limits<double>::infinity() : excess;
}

// Errors of all results: the worst in multiples of a tolerance, and the root of the mean square of
// a tensor relative to that of the tensor itself.
struct Errors {
  double worst = 0, out = 0, gradients = 0;
};

// Attends block by block, as a ring does, and compares everything.
template <class T>
Errors errors_of(const Case& c, double tolerance, bool record_max = true) {
  const Tensors t(c);
  const DenseAttentionOutput expected = dense(c, t);
  const Placement placement(c.placement, c.sequence_length, c.blocks, 1);
  AttentionOptions options;
  options.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.head_size)));
  options.soft_cap = static_cast<float>(c.soft_cap);
  options.record_max = record_max;
  options.queries_per_kv = c.query_heads / c.kv_heads;

  struct Block {
    std::vector<Run> runs;
    std::vector<int32_t> segments;
    Rows<T> q, k, v, dout, out;
    Rows<float> accumulator, dq, dk, dv;
    Buffer<float> max, sum, lse, delta;
  };
  std::vector<Block> blocks;
  for (int b = 0; b < c.blocks; ++b) {
    const std::vector<Run> runs = placement.ring_block(b);
    const int64_t rows = count_rows(runs);
    std::vector<int32_t> segments;
    if (!c.segments.empty()) {
      segments.resize(rows);
      take_rows(runs, c.segments, segments);
    }
    const auto make = [&](int64_t heads, const std::vector<float>& x) {
      return Rows<T>(runs, heads, c.head_size, x);
    };
    const auto zeros = [&](int64_t heads) { return Rows<float>(runs, heads, c.head_size, {}); };
    const int64_t words = c.query_heads * rows;
    blocks.push_back({runs, segments, make(c.query_heads, t.q), make(c.kv_heads, t.k),
                      make(c.kv_heads, t.v), make(c.query_heads, t.dout), make(c.query_heads, {}),
                      zeros(c.query_heads), zeros(c.query_heads), zeros(c.kv_heads),
                      zeros(c.kv_heads), Buffer<float>(words), Buffer<float>(words),
                      Buffer<float>(words), Buffer<float>(words)});
  }
  const auto stat = [&](Buffer<float>& x, Block& b) {
    return View<float, 2>(x.data(), {c.query_heads, count_rows(b.runs)});
  };
  std::vector<float> max_logits(c.query_heads, -std::numeric_limits<float>::infinity());
  std::vector<float> dsinks(c.query_heads);
  for (Block& own : blocks) {
    const AttentionState state{own.accumulator.view(), stat(own.max, own), stat(own.sum, own)};
    reset(state);
    const auto mask_of = [&](Block& other) {
      return BlockMask{{own.runs, own.segments}, {other.runs, other.segments}, c.kind, c.window};
    };
    for (Block& other : blocks) {
      if (&other == &blocks.back()) {
        attend_and_finish<T>(own.q.view(), other.k.view(), other.v.view(), mask_of(other), options,
                             state, t.sinks, own.out.view(), stat(own.lse, own));
      } else {
        attend<T>(own.q.view(), other.k.view(), other.v.view(), mask_of(other), options, state);
      }
    }
    update_max_logits(state, max_logits);
    attention_delta<T>(own.out.view(), own.dout.view(), stat(own.delta, own));
    if (c.sinks) sink_backward(t.sinks, stat(own.lse, own), stat(own.delta, own), dsinks);
    for (Block& other : blocks) {
      attend_backward<T>(own.q.view(), other.k.view(), other.v.view(), own.dout.view(),
                         stat(own.lse, own), stat(own.delta, own), mask_of(other), options,
                         {own.dq.view(), other.dk.view(), other.dv.view()});
    }
  }
  double worst = 0;
  double squares[4][2] = {};  // out, dq, dk, dv: of the error, of the tensor
  const auto compare = [&](auto view, const Block& b, const std::vector<double>& natural,
                           double* square) {
    int64_t row = 0;
    for (const Run& run : b.runs) {
      for (int64_t i = 0; i < run.count; ++i, ++row) {
        const int64_t position = run.first + i * run.stride;
        for (int64_t h = 0; h < view.extent(1); ++h) {
          for (int64_t d = 0; d < c.head_size; ++d) {
            const int64_t at = (position * view.extent(1) + h) * c.head_size + d;
            const double value = to_float(view(row, h, d));
            worst = std::max(worst, error(value, natural[at], tolerance));
            square[0] += (value - natural[at]) * (value - natural[at]);
            square[1] += natural[at] * natural[at];
          }
        }
      }
    }
  };
  for (Block& b : blocks) {
    compare(b.out.view(), b, expected.out, squares[0]);
    compare(b.dq.view(), b, expected.dq, squares[1]);
    compare(b.dk.view(), b, expected.dk, squares[2]);
    compare(b.dv.view(), b, expected.dv, squares[3]);
    for (int64_t h = 0; h < c.query_heads; ++h) {
      for (int64_t i = 0; i < count_rows(b.runs); ++i) {
        const double lse = expected.lse[h * c.sequence_length + position_of(b.runs, i)];
        worst = std::max(worst, error(stat(b.lse, b)(h, i), lse, tolerance));
      }
    }
    for (bool intact : {b.q.frame_is_intact(), b.k.frame_is_intact(), b.out.frame_is_intact(),
                        b.accumulator.frame_is_intact(), b.dq.frame_is_intact(),
                        b.dk.frame_is_intact(), b.dv.frame_is_intact()}) {
      EXPECT_TRUE(intact) << "written outside of an operand";
    }
  }
  for (int64_t h = 0; h < c.query_heads; ++h) {
    if (record_max) {
      worst = std::max(worst, error(max_logits[h], expected.max_logits[h], tolerance));
    }
    if (c.sinks) worst = std::max(worst, error(dsinks[h], expected.dsinks[h], tolerance));
  }
  const auto relative = [&](int tensor) {
    return squares[tensor][1] == 0 ? 0 : std::sqrt(squares[tensor][0] / squares[tensor][1]);
  };
  return {worst, relative(0), std::max({relative(1), relative(2), relative(3)})};
}
template <class T>
double worst_error(const Case& c, double tolerance) {
  return errors_of<T>(c, tolerance).worst;
}

std::vector<int32_t> documents(std::initializer_list<int64_t> lengths, int64_t total) {
  std::vector<int32_t> segments;
  int32_t id = 0;
  for (int64_t length : lengths) segments.insert(segments.end(), length, ++id);
  segments.resize(total, 0);
  return segments;
}

class BlockAttention : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (GetParam() > detected_isa()) GTEST_SKIP() << "this machine lacks " << name_of(GetParam());
    setenv("ODYSSEY_MAX_ISA", std::string(name_of(GetParam())).c_str(), 1);
    ASSERT_EQ(isa_in_use(), GetParam());
  }
  void TearDown() override { unsetenv("ODYSSEY_MAX_ISA"); }
};
INSTANTIATE_TEST_SUITE_P(EveryIsa, BlockAttention,
                         testing::Values(Isa::kRef, Isa::kPortable, Isa::kAvx2, Isa::kAvx512,
                                         Isa::kAmx),
                         [](const auto& isa) { return std::string(name_of(isa.param)); });

constexpr double kTolerance = 1e-5;

TEST_P(BlockAttention, EqualsDenseForEveryMaskAndPlacement) {
  for (MaskKind kind :
       {MaskKind::kCausal, MaskKind::kFull, MaskKind::kLocalSliding, MaskKind::kChunk}) {
    for (PlacementKind placement :
         {PlacementKind::kContiguous, PlacementKind::kDualChunkSwap, PlacementKind::kStriped}) {
      for (bool packed : {false, true}) {
        Case c{.sequence_length = 211,
               .query_heads = 6,
               .kv_heads = 2,
               .head_size = 24,
               .kind = kind,
               .window = 37,
               .placement = placement,
               .blocks = 3};
        if (packed) c.segments = documents({1, 70, 3, 90, 20}, 211);
        EXPECT_LE(worst_error<float>(c, kTolerance), 1)
            << name_of(kind) << " " << name_of(placement) << " packed=" << packed;
      }
    }
  }
}

TEST_P(BlockAttention, EqualsDenseForRaggedShapes) {
  for (int64_t head_size : {1, 6, 16, 33, 64, 80, 128}) {
    for (int64_t length : {1, 7, 64, 97, 130}) {
      const Case c{.sequence_length = length,
                   .query_heads = 3,
                   .kv_heads = 1,
                   .head_size = head_size,
                   .blocks = 2};
      EXPECT_LE(worst_error<float>(c, kTolerance), 1) << "S=" << length << " D=" << head_size;
    }
  }
}

TEST_P(BlockAttention, WindowOfOneReturnsTheValueItself) {
  Case c{.sequence_length = 32, .kind = MaskKind::kLocalSliding, .window = 1, .blocks = 4};
  EXPECT_LE(worst_error<float>(c, kTolerance), 1);
}

TEST_P(BlockAttention, SoftCapAndItsDerivative) {
  Case c{.sequence_length = 100, .query_heads = 8, .soft_cap = 2, .blocks = 2, .gain = 3};
  EXPECT_LE(worst_error<float>(c, kTolerance), 1);
  c.soft_cap = 30;
  EXPECT_LE(worst_error<float>(c, 2 * kTolerance), 1);
}

TEST_P(BlockAttention, SinksJoinTheSoftmax) {
  Case c{.sequence_length = 60, .query_heads = 6, .segments = documents({9, 20}, 60), .blocks = 2};
  c.sinks = true;
  EXPECT_LE(worst_error<float>(c, kTolerance), 1);
}

TEST_P(BlockAttention, RowsThatSeeNothingAreZeroWithoutNan) {
  // 5 real tokens, then padding only: whole blocks see nothing.
  const Case c{.sequence_length = 16,
               .query_heads = 2,
               .kv_heads = 1,
               .head_size = 8,
               .segments = documents({5}, 16),
               .blocks = 4};
  EXPECT_LE(worst_error<float>(c, kTolerance), 1);
}

TEST_P(BlockAttention, FarApartLogitsDoNotOverflow) {
  // q = (1, 0, 0, 0); keys of -20 and 120, in both orders, in two blocks.
  for (float first : {-20.0f, 120.0f}) {
    const float second = 100.0f - first;
    std::vector<float> q(8 * 4), k(8 * 4), v(8 * 4, 1.0f);
    for (int i = 0; i < 8; ++i) {
      q[i * 4] = 1;
      k[i * 4] = i < 4 ? first : second;
    }
    const std::vector<odyssey::Run> runs[2] = {{{0, 4, 1}}, {{4, 4, 1}}};
    const std::vector<odyssey::Run> all{{0, 8, 1}};
    std::vector<float> accumulator(32), max(8), sum(8), out(32), lse(8);
    const AttentionState state{
        {accumulator.data(), {8, 1, 4}}, {max.data(), {1, 8}}, {sum.data(), {1, 8}}};
    reset(state);
    for (int b = 0; b < 2; ++b) {
      const View<const float, 3> kb(k.data() + b * 16, {4, 1, 4}), vb(v.data() + b * 16, {4, 1, 4});
      attend<float>(View<const float, 3>(q.data(), {8, 1, 4}), kb, vb,
                    {{all, {}}, {runs[b], {}}, MaskKind::kFull, 0}, {}, state);
    }
    finish<float>(state, {}, {out.data(), {8, 1, 4}}, {lse.data(), {1, 8}});
    for (float x : lse) EXPECT_NEAR(x, 120 + std::log(4.0f), 2e-5f);
    for (float x : out) EXPECT_FLOAT_EQ(x, 1);
  }
}

TEST_P(BlockAttention, Bf16ErrorDoesNotGrowWithTheNumberOfBlocks) {
  const auto at = [](int blocks) {
    return worst_error<bf16>({.sequence_length = 256,
                              .query_heads = 2,
                              .kv_heads = 1,
                              .head_size = 32,
                              .kind = MaskKind::kFull,
                              .blocks = blocks},
                             1e-2);
  };
  const double one = at(1);
  EXPECT_LT(one, 3);
  EXPECT_LE(at(8), 1.2 * one);
  EXPECT_LE(at(32), 1.2 * one);
}

// Rounding P and dS to bf16 errs by up to 2^-9 of each element, and so does rounding `out`.
constexpr double kBf16Tolerance = 4e-2;
constexpr double kBf16Rms = 4e-3;
constexpr double kBf16GradientRms = 6e-3;

void expect_bf16_errors(Case c, const std::string& what) {
  c.rounded = true;
  for (bool record_max : {true, false}) {
    if (!record_max && isa_in_use() != Isa::kAmx) continue;  // no difference elsewhere
    const Errors e = errors_of<bf16>(c, kBf16Tolerance, record_max);
    EXPECT_LE(e.worst, 1) << what << " " << record_max;
    EXPECT_LE(e.out, kBf16Rms) << what << " " << record_max;
    EXPECT_LE(e.gradients, kBf16GradientRms) << what << " " << record_max;
  }
}

TEST_P(BlockAttention, Bf16IsNearDenseForEveryMaskAndPlacement) {
  for (MaskKind kind :
       {MaskKind::kCausal, MaskKind::kFull, MaskKind::kLocalSliding, MaskKind::kChunk}) {
    for (PlacementKind placement :
         {PlacementKind::kContiguous, PlacementKind::kDualChunkSwap, PlacementKind::kStriped}) {
      for (bool packed : {false, true}) {
        Case c{.sequence_length = 423,
               .query_heads = 6,
               .kv_heads = 2,
               .head_size = 40,
               .kind = kind,
               .window = 77,
               .placement = placement,
               .blocks = 3};
        if (packed) c.segments = documents({1, 140, 3, 190, 40}, 423);
        expect_bf16_errors(c, std::string(name_of(kind)) + " " + std::string(name_of(placement)) +
                                  " packed=" + std::to_string(packed));
      }
    }
  }
}

// The phases of a ring: blocks of many tiles whose keys stand elsewhere in the sequence than the
// queries, in every placement, with the state going in and out.
TEST_P(BlockAttention, Bf16RingPhasesAreNearDense) {
  if (GetParam() != Isa::kAmx) GTEST_SKIP() << "elsewhere bf16 takes the path of fp32";
  for (PlacementKind placement :
       {PlacementKind::kContiguous, PlacementKind::kDualChunkSwap, PlacementKind::kStriped}) {
    for (int64_t head_size : {64, 128}) {
      for (MaskKind kind : {MaskKind::kCausal, MaskKind::kLocalSliding}) {
        expect_bf16_errors({.sequence_length = 600,
                            .query_heads = 2,
                            .kv_heads = 1,
                            .head_size = head_size,
                            .kind = kind,
                            .window = 233,
                            .placement = placement,
                            .blocks = 3},
                           std::string(name_of(kind)) + " " + std::string(name_of(placement)) +
                               " D=" + std::to_string(head_size));
      }
    }
  }
}

TEST_P(BlockAttention, Bf16IsNearDenseForRaggedShapes) {
  for (int64_t head_size : {1, 6, 16, 33, 64, 80, 96, 128, 160, 192, 224, 256}) {
    for (int64_t length : {1, 7, 64, 97, 300}) {
      expect_bf16_errors({.sequence_length = length,
                          .query_heads = 3,
                          .kv_heads = 1,
                          .head_size = head_size,
                          .blocks = length < 300 ? 2 : 1},
                         "S=" + std::to_string(length) + " D=" + std::to_string(head_size));
    }
  }
}

// Long enough for several items of queries and chunks of keys, so that squares with and without a
// mask follow one another, gaps between them included.
TEST_P(BlockAttention, Bf16IsNearDenseOverManyTiles) {
  for (MaskKind kind : {MaskKind::kCausal, MaskKind::kLocalSliding}) {
    for (int64_t head_size : {64, 128}) {
      Case c{.sequence_length = 421,
             .query_heads = 3,
             .kv_heads = 1,
             .head_size = head_size,
             .kind = kind,
             .window = 170};
      const std::string what = std::string(name_of(kind)) + " D=" + std::to_string(head_size);
      expect_bf16_errors(c, what);
      c.segments = documents({230, 180}, 421);
      expect_bf16_errors(c, what + " packed");
    }
  }
}

TEST_P(BlockAttention, Bf16SoftCapScaleAndSinks) {
  Case c{.sequence_length = 150, .query_heads = 8, .soft_cap = 2, .blocks = 2, .gain = 2};
  expect_bf16_errors(c, "cap 2");
  c.soft_cap = 30;
  c.sinks = true;
  expect_bf16_errors(c, "cap 30 and sinks");
  c.soft_cap = 0;
  c.segments = documents({9, 80}, 150);
  expect_bf16_errors(c, "sinks and padding");
}

// Everything one bf16 call computes, for comparisons of bits.
struct Bf16Call {
  int64_t queries = 330, keys = 330, query_heads = 5, kv_heads = 3, head_size = 72;
  AttentionOptions options{.scale = 0.1f, .soft_cap = 0, .queries_per_kv = 2, .phase = 1};
  MaskKind kind = MaskKind::kCausal;
  int64_t window = 0;
  std::vector<int32_t> segments = {};
  bool fresh = false;  // the gradients, which hold NaN then
  std::vector<float> q = values(queries * query_heads * head_size, 1);
  std::vector<float> dout = values(queries * query_heads * head_size, 2);
  std::vector<float> k = values(keys * kv_heads * head_size, 3);
  std::vector<float> v = values(keys * kv_heads * head_size, 4);

  static std::vector<float> values(int64_t size, uint64_t stream) {
    std::vector<float> x(size);
    const Random random(9, stream);
    for (int64_t i = 0; i < size; ++i) x[i] = static_cast<float>(random.normal(i));
    return x;
  }
  // [accumulator, max, sum, dq, dk, dv]
  std::vector<std::vector<float>> run(int64_t offset = 0) const {
    const auto stored = [&](const std::vector<float>& x) {
      std::vector<bf16> y(offset, bf16(kNan));
      for (float value : x) y.push_back(bf16(value));
      return y;
    };
    const std::vector<bf16> qs = stored(q), ks = stored(k), vs = stored(v), douts = stored(dout);
    const auto view = [&](const std::vector<bf16>& x, int64_t rows, int64_t heads) {
      return View<const bf16, 3>(x.data() + offset, {rows, heads, head_size});
    };
    std::vector<float> acc(q.size()), max(queries * query_heads), sum(max.size()), lse(max.size()),
        delta(max.size()), dq(q.size()), dk(k.size()), dv(v.size());
    if (fresh) {
      for (std::vector<float>* x : {&dq, &dk, &dv}) std::fill(x->begin(), x->end(), kNan);
    }
    std::vector<bf16> out(q.size());
    const View<float, 3> dq_view(dq.data(), {queries, query_heads, head_size});
    const auto stat = [&](std::vector<float>& x) {
      return View<float, 2>(x.data(), {query_heads, queries});
    };
    const View<bf16, 3> outs(out.data(), {queries, query_heads, head_size});
    const AttentionState state{
        {acc.data(), {queries, query_heads, head_size}}, stat(max), stat(sum)};
    const std::vector<odyssey::Run> q_runs{{keys - queries, queries, 1}}, k_runs{{0, keys, 1}};
    const BlockMask mask{{q_runs, segments}, {k_runs, segments}, kind, window};
    reset(state);
    attend<bf16>(view(qs, queries, query_heads), view(ks, keys, kv_heads), view(vs, keys, kv_heads),
                 mask, options, state);
    finish<bf16>(state, {}, outs, stat(lse));
    attention_delta<bf16>(outs, view(douts, queries, query_heads), stat(delta));
    attend_backward<bf16>(view(qs, queries, query_heads), view(ks, keys, kv_heads),
                          view(vs, keys, kv_heads), view(douts, queries, query_heads), stat(lse),
                          stat(delta), mask, options,
                          {dq_view,
                           {dk.data(), {keys, kv_heads, head_size}},
                           {dv.data(), {keys, kv_heads, head_size}},
                           fresh,
                           fresh});
    return {acc, max, sum, dq, dk, dv};
  }
};

// A block of keys at a time; state from before, sinks, rows that see nothing at all.
template <class T>
void expect_one_call_equals_two(bool record_max) {
  for (int64_t head_size : {20, 64, 128}) {
    const Case c{.sequence_length = 300, .head_size = head_size, .sinks = true};
    const Tensors t(c);
    const std::vector<odyssey::Run> all{{0, 300, 1}};
    const std::vector<odyssey::Run> keys[] = {{{0, 150, 2}}, {{1, 150, 2}}};
    const std::vector<int32_t> segments = documents({100, 130}, 300);
    Rows<T> q(all, 4, head_size, t.q);
    for (bool sinks : {false, true}) {
      struct Result {
        Rows<T> out;
        std::vector<float> acc, max, sum, lse;
      };
      const auto run = [&](bool fused) {
        // An accumulator that has seen nothing may hold anything.
        Result r{{all, 4, head_size, {}},
                 std::vector<float>(300 * 4 * head_size, kNan),
                 std::vector<float>(1200),
                 std::vector<float>(1200),
                 std::vector<float>(1200)};
        const View<float, 2> lse(r.lse.data(), {4, 300});
        const AttentionState state{{r.acc.data(), {300, 4, head_size}},
                                   {r.max.data(), {4, 300}},
                                   {r.sum.data(), {4, 300}}};
        const std::span<const float> logits =
            sinks ? std::span<const float>(t.sinks) : std::span<const float>();
        reset(state);
        for (int b = 0; b < 2; ++b) {
          Rows<T> k(keys[b], 2, head_size, t.k), v(keys[b], 2, head_size, t.v);
          std::vector<int32_t> key_segments(150);
          take_rows(keys[b], segments, key_segments);
          const BlockMask mask{{all, segments}, {keys[b], key_segments}, MaskKind::kCausal, 0};
          const AttentionOptions options{
              .scale = 0.2f, .record_max = record_max, .queries_per_kv = 2};
          if (fused && b == 1) {
            attend_and_finish<T>(q.view(), k.view(), v.view(), mask, options, state, logits,
                                 r.out.view(), lse);
          } else {
            attend<T>(q.view(), k.view(), v.view(), mask, options, state);
          }
        }
        if (!fused) finish<T>(state, logits, r.out.view(), lse);
        return r;
      };
      Result one = run(true), two = run(false);
      EXPECT_EQ(one.max, two.max);
      EXPECT_EQ(one.sum, two.sum);
      EXPECT_EQ(one.lse, two.lse);
      EXPECT_TRUE(one.out.frame_is_intact());
      for (int64_t i = 0; i < 300; ++i) {
        for (int64_t h = 0; h < 4; ++h) {
          for (int64_t d = 0; d < head_size; ++d) {
            const float x = to_float(one.out.view()(i, h, d));
            ASSERT_EQ(x, to_float(two.out.view()(i, h, d))) << i << " " << h << " " << d;
            if (i >= 230) {
              ASSERT_EQ(x, 0);
            }
          }
        }
      }
      EXPECT_EQ(one.lse[299], sinks ? t.sinks[0] : -std::numeric_limits<float>::infinity());
    }
  }
}

TEST_P(BlockAttention, AttendAndFinishGivesTheBitsOfBoth) {
  expect_one_call_equals_two<float>(true);
  for (bool record_max : {false, true}) expect_one_call_equals_two<bf16>(record_max);
}

TEST_P(BlockAttention, Bf16GivesTheSameBitsAtAnyThreadCountAndAlignment) {
  for (MaskKind kind : {MaskKind::kCausal, MaskKind::kFull}) {
    Bf16Call call;
    call.kind = kind;
    const int before = thread_count();
    set_thread_count(1);
    const auto expected = call.run();
    for (int threads : {1, 2, 3}) {
      set_thread_count(threads);
      EXPECT_EQ(call.run(threads), expected) << threads << " threads";
    }
    set_thread_count(before);
  }
}

TEST_P(BlockAttention, Bf16FreshGradientsAreWrittenAsIfAddedToZeros) {
  for (MaskKind kind : {MaskKind::kCausal, MaskKind::kFull, MaskKind::kLocalSliding}) {
    Bf16Call call;
    call.kind = kind;
    call.window = 40;
    for (bool padded : {false, true}) {
      // Padding at both ends: blocks of queries and tiles of keys that nobody sees.
      if (padded) {
        for (int64_t i = 0; i < call.keys; ++i) {
          call.segments.push_back(i < 130 || i > call.keys - 80 ? 0 : 1);
        }
      }
      call.fresh = false;
      const auto expected = call.run();
      call.fresh = true;
      EXPECT_EQ(call.run(), expected) << "mask " << static_cast<int>(kind) << " " << padded;
    }
  }
}

TEST_P(BlockAttention, Bf16FreshGradientsOfKeysThatNoHeadReadsAreZero) {
  // Two query heads and three key/value heads of one query head each: nobody reads the last.
  constexpr int64_t kRows = 70, kSize = 20;
  const std::vector<bf16> x(kRows * 3 * kSize, bf16(0.5f));
  std::vector<float> stats(2 * kRows, 1), dq(kRows * 2 * kSize, kNan), dk(kRows * 3 * kSize, kNan),
      dv(dk);
  const std::vector<odyssey::Run> runs{{0, kRows, 1}};
  AttentionOptions options;
  options.queries_per_kv = 1;
  const View<const bf16, 3> two(x.data(), {kRows, 2, kSize}), three(x.data(), {kRows, 3, kSize});
  const View<const float, 2> stat(stats.data(), {2, kRows});
  attend_backward<bf16>(two, three, three, two, stat, stat, {{runs, {}}, {runs, {}}}, options,
                        {{dq.data(), {kRows, 2, kSize}},
                         {dk.data(), {kRows, 3, kSize}},
                         {dv.data(), {kRows, 3, kSize}},
                         true,
                         true});
  for (const std::vector<float>* gradient : {&dq, &dk, &dv}) {
    for (float value : *gradient) ASSERT_TRUE(std::isfinite(value));
  }
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t d = 0; d < kSize; ++d) {
      ASSERT_EQ(dk[(i * 3 + 2) * kSize + d], 0);
      ASSERT_EQ(dv[(i * 3 + 2) * kSize + d], 0);
    }
  }
}

void expect_rows_unaware_of_hidden_keys(bool record_max) {
  Bf16Call call;
  call.options.record_max = record_max;
  const auto before = call.run();
  const int64_t hidden_from = 201;  // key 201 changes: rows 0..200 must keep every bit
  for (int64_t x = 0; x < call.kv_heads * call.head_size; ++x) {
    call.k[hidden_from * call.kv_heads * call.head_size + x] = 50;
    call.v[hidden_from * call.kv_heads * call.head_size + x] = -70;
  }
  const auto after = call.run();
  const int64_t row = call.query_heads * call.head_size;
  for (int tensor : {0, 3}) {  // accumulator, dq
    EXPECT_TRUE(std::equal(before[tensor].begin(), before[tensor].begin() + hidden_from * row,
                           after[tensor].begin()));
    EXPECT_FALSE(std::equal(before[tensor].begin() + hidden_from * row, before[tensor].end(),
                            after[tensor].begin() + hidden_from * row));
  }
  for (int64_t h = 0; h < call.query_heads; ++h) {
    for (int tensor : {1, 2}) {  // max, sum
      const auto begin = before[tensor].begin() + h * call.queries;
      EXPECT_TRUE(std::equal(begin, begin + hidden_from, after[tensor].begin() + h * call.queries));
    }
  }
}

TEST_P(BlockAttention, Bf16RowsDoNotNoticeKeysTheyMayNotSee) {
  for (bool record_max : {false, true}) expect_rows_unaware_of_hidden_keys(record_max);
}

// Queries of segment 2 and padding among keys of segment 1.
void expect_unseeing_rows_untouched(bool record_max) {
  constexpr int64_t kRows = 40, kSize = 20;
  std::vector<int32_t> query_segments(kRows, 1), key_segments(kRows, 1);
  for (int64_t i = 10; i < 30; ++i) query_segments[i] = i < 20 ? 2 : 0;
  const std::vector<bf16> x(kRows * kSize, bf16(0.5f));
  const float small = record_max ? 3e-39f : 3e-37f;  // tiles know no numbers below the normal ones
  std::vector<float> acc(kRows * kSize, small), max(kRows, 1.25f), sum(kRows, 0.3f);
  const View<const bf16, 3> rows(x.data(), {kRows, 1, kSize});
  const std::vector<odyssey::Run> runs{{0, kRows, 1}};
  const AttentionState state{
      {acc.data(), {kRows, 1, kSize}}, {max.data(), {1, kRows}}, {sum.data(), {1, kRows}}};
  attend<bf16>(rows, rows, rows, {{runs, query_segments}, {runs, key_segments}, MaskKind::kFull, 0},
               {.record_max = record_max}, state);
  for (int64_t i = 0; i < kRows; ++i) {
    if (i < 10 || i >= 30) {
      if (record_max) {
        EXPECT_EQ(max[i], 5.0f);
      }
      EXPECT_NEAR(max[i] + std::log(sum[i]), 5 + std::log(40 + 0.3 * std::exp(-3.75)), 1e-3);
    } else {
      EXPECT_EQ(max[i], 1.25f);
      EXPECT_EQ(sum[i], 0.3f);
      for (int64_t d = 0; d < kSize; ++d) EXPECT_EQ(acc[i * kSize + d], small);
    }
  }
}

TEST_P(BlockAttention, Bf16LeavesRowsThatSeeNothingUntouched) {
  for (bool record_max : {false, true}) expect_unseeing_rows_untouched(record_max);
}

TEST_P(BlockAttention, Bf16RowsThatSeeNothingAreZeroWhateverTheCallBeforeLeft) {
  constexpr int64_t kRows = 64, kSize = 32;
  const std::vector<bf16> x(kRows * kSize, bf16(0.5f));
  const std::vector<bf16> huge(kRows * kSize, bf16(std::numeric_limits<float>::infinity()));
  std::vector<bf16> out(kRows * kSize);
  std::vector<float> acc(kRows * kSize), max(kRows), sum(kRows), lse(kRows);
  const auto view = [](const auto& of) {
    return View<const bf16, 3>(of.data(), {kRows, 1, kSize});
  };
  const std::vector<odyssey::Run> runs{{0, kRows, 1}};
  const AttentionState state{
      {acc.data(), {kRows, 1, kSize}}, {max.data(), {1, kRows}}, {sum.data(), {1, kRows}}};
  for (const int32_t segment : {1, 0}) {  // of the keys: all see all, then nothing
    const std::vector<int32_t> queries(kRows, 1), keys(kRows, segment);
    reset(state);
    attend_and_finish<bf16>(view(x), view(x), view(segment == 1 ? huge : x),
                            {{runs, queries}, {runs, keys}, MaskKind::kFull, 0}, {}, state, {},
                            {out.data(), {kRows, 1, kSize}}, {lse.data(), {1, kRows}});
    for (const bf16 value : out) {
      ASSERT_EQ(to_float(value), segment == 1 ? std::numeric_limits<float>::infinity() : 0.0f);
    }
    EXPECT_EQ(std::isinf(lse[0]), segment == 0);
  }
}

// Key j has score `scores[j / 64]` for every query: references have to move, and the small ones
// that follow must not.
void expect_exact_far_scores(bool record_max) {
  const float scores[] = {-90, 3, 2, 130, 10, 131, 139, -50};
  constexpr int64_t kTotal = 512, kSize = 16;
  for (float scale : {1.0f, -1.0f, 0.0f}) {
    std::vector<bf16> q(kTotal * kSize), k(kTotal * kSize), v(kTotal * kSize);
    for (int64_t i = 0; i < kTotal; ++i) {
      q[i * kSize] = bf16(1.0f);
      k[i * kSize] = bf16(scores[i / 64] * (scale < 0 ? -1.0f : 1.0f));
      for (int64_t d = 0; d < kSize; ++d) v[i * kSize + d] = bf16(static_cast<float>(i / 64 + 1));
    }
    std::vector<float> acc(kTotal * kSize), max(kTotal), sum(kTotal);
    const std::vector<odyssey::Run> runs{{0, kTotal, 1}};
    const AttentionState state{
        {acc.data(), {kTotal, 1, kSize}}, {max.data(), {1, kTotal}}, {sum.data(), {1, kTotal}}};
    reset(state);
    AttentionOptions options;
    options.scale = scale;
    options.record_max = record_max;
    const auto view = [](const std::vector<bf16>& x) {
      return View<const bf16, 3>(x.data(), {kTotal, 1, kSize});
    };
    attend<bf16>(view(q), view(k), view(v), {{runs, {}}, {runs, {}}, MaskKind::kCausal, 0}, options,
                 state);
    for (int64_t i = 0; i < kTotal; ++i) {
      const auto score = [&](int64_t j) { return double{scale} * to_float(k[j * kSize]); };
      double most = -1e300, total = 0, value = 0;
      for (int64_t j = 0; j <= i; ++j) most = std::max(most, score(j));
      for (int64_t j = 0; j <= i; ++j) {
        const double s = score(j);
        total += std::exp(s - most);
        value += std::exp(s - most) * static_cast<double>(j / 64 + 1);
      }
      if (record_max) {
        EXPECT_EQ(max[i], static_cast<float>(most)) << i;
      }
      EXPECT_LE(sum[i], 0x1p40) << i;
      const double scaled = std::exp(most - max[i]);
      EXPECT_NEAR(sum[i] / (total * scaled), 1, 1e-3) << i;
      EXPECT_NEAR(acc[i * kSize + 5] / (value * scaled), 1, 4e-3) << i;
    }
  }
}

TEST_P(BlockAttention, Bf16ScoresThatGrowAndShrinkFarKeepTheSoftmaxExact) {
  for (bool record_max : {false, true}) expect_exact_far_scores(record_max);
}

TEST_P(BlockAttention, HeadRangesOfARankKeepTheModelsHeadMap) {
  // Query heads 2..4 of 6 with 2 per KV head: KV heads 1 and 2 of 3, phase 0; heads 1..3: phase 1.
  AttentionOptions options;
  options.queries_per_kv = 2;
  options.phase = 1;
  EXPECT_EQ(options.kv_head_of(0), 0);
  EXPECT_EQ(options.kv_head_of(1), 1);
  EXPECT_EQ(options.kv_head_of(2), 1);
  // Three query heads over two KV heads with that phase equal the same heads of the whole model.
  const Case c{.sequence_length = 50, .query_heads = 6, .kv_heads = 3, .head_size = 8};
  const Tensors t(c);
  const DenseAttentionOutput expected = dense(c, t);
  const std::vector<odyssey::Run> runs{{0, 50, 1}};
  Rows<float> q(runs, 6, 8, t.q), k(runs, 3, 8, t.k), v(runs, 3, 8, t.v), acc(runs, 3, 8, {}),
      out(runs, 3, 8, {});
  Buffer<float> max(150), sum(150), lse(150);
  const AttentionState state{acc.view(), {max.data(), {3, 50}}, {sum.data(), {3, 50}}};
  options.scale = static_cast<float>(1 / std::sqrt(8.0));
  reset(state);
  attend<float>(q.view().slice(1, 1, 4), k.view().slice(1, 0, 2), v.view().slice(1, 0, 2),
                {{runs, {}}, {runs, {}}, MaskKind::kCausal, 0}, options, state);
  finish<float>(state, {}, out.view(), {lse.data(), {3, 50}});
  for (int64_t i = 0; i < 50; ++i) {
    for (int64_t h = 0; h < 3; ++h) {
      for (int64_t d = 0; d < 8; ++d) {
        EXPECT_LE(error(out.view()(i, h, d), expected.out[(i * 6 + h + 1) * 8 + d], kTolerance), 1);
      }
    }
  }
}

TEST(Isa, RefusesUnknownNames) {
  setenv("ODYSSEY_MAX_ISA", "sse9", 1);
  EXPECT_THROW(isa_in_use(), UserError);
  unsetenv("ODYSSEY_MAX_ISA");
}

TEST(DenseAttention, GradientsAgreeWithFiniteDifferences) {
  Case c{.sequence_length = 7,
         .query_heads = 4,
         .kv_heads = 2,
         .head_size = 3,
         .kind = MaskKind::kLocalSliding,
         .window = 3,
         .soft_cap = 1.5,
         .segments = documents({3, 2}, 7)};
  c.sinks = true;
  Tensors t(c);
  const DenseAttentionOutput expected = dense(c, t);
  const auto loss = [&] {
    const DenseAttentionOutput o = dense(c, t);
    double sum = 0;
    for (size_t i = 0; i < o.out.size(); ++i) sum += o.out[i] * double{t.dout[i]};
    return sum;
  };
  const auto check = [&](std::vector<float>& x, const std::vector<double>& gradient) {
    for (size_t i = 0; i < x.size(); ++i) {
      const float keep = x[i];
      x[i] = keep + 0x1p-10f;
      const float up = x[i];
      const double above = loss();
      x[i] = keep - 0x1p-10f;
      const double numeric = (above - loss()) / (double{up} - double{x[i]});
      x[i] = keep;
      EXPECT_NEAR(numeric, gradient[i], 2e-5);
    }
  };
  check(t.q, expected.dq);
  check(t.k, expected.dk);
  check(t.v, expected.dv);
  check(t.sinks, expected.dsinks);
}

}  // namespace
}  // namespace odyssey
