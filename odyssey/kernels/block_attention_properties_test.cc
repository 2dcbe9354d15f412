// SPDX-License-Identifier: Apache-2.0
// Properties of fp32 block attention on random shapes, masks and placements, under every
// instruction set of the machine. Failing cases are shrunk; RC_PARAMS="seed=..." repeats one.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "odyssey/base/random.h"
#include "odyssey/base/view.h"
#include "odyssey/kernels/block_attention.h"
#include "odyssey/kernels/dense_attention.h"
#include "odyssey/kernels/isa.h"

namespace odyssey {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// An attention problem over `length` positions and the ways in which its rows may be stored.
struct Problem {
  int64_t length, kv_heads, group, head_size;
  MaskKind kind;
  int64_t window;
  float soft_cap;
  bool has_sinks;
  std::vector<int32_t> segments;         // by position; empty: one document
  std::vector<Run> order;                // storage order of the queries: all positions, once each
  std::vector<std::vector<Run>> blocks;  // of the keys: all positions, once each
  int64_t offset;                        // floats by which rows miss the alignment of a cache line
  std::vector<float> q, k, v, dout, sinks;  // by position

  int64_t query_heads() const { return kv_heads * group; }
  bool sees(int64_t query, int64_t key) const {
    if (!segments.empty() && (segments[query] == 0 || segments[query] != segments[key])) {
      return false;
    }
    return visible(kind, window, query, key);
  }
};

// Cuts all positions into runs of stride 1 or 2, in random order.
std::vector<Run> random_runs(int64_t length) {
  std::vector<Run> runs;
  for (int64_t first = 0; first < length;) {
    const int64_t count = std::min(length - first, *rc::gen::inRange<int64_t>(1, length + 1));
    if (*rc::gen::arbitrary<bool>()) {
      runs.push_back({first, (count + 1) / 2, 2});
      if (count > 1) runs.push_back({first + 1, count / 2, 2});
    } else {
      runs.push_back({first, count, 1});
    }
    first += count;
  }
  for (size_t i = runs.size(); i > 1; --i) {
    std::swap(runs[i - 1], runs[*rc::gen::inRange<size_t>(0, i)]);
  }
  return runs;
}

std::vector<float> random_floats(int64_t size, uint64_t stream) {
  std::vector<float> values(size);
  for (int64_t i = 0; i < size; ++i) {
    values[i] = static_cast<float>(Random(3, stream).normal(static_cast<uint64_t>(i)));
  }
  return values;
}

Problem random_problem() {
  Problem p{};
  p.length = *rc::gen::inRange<int64_t>(1, 150);
  p.kv_heads = *rc::gen::inRange<int64_t>(1, 3);
  p.group = *rc::gen::inRange<int64_t>(1, 4);
  // Large heads with few rows and the other way round: the oracle takes length^2 * head_size.
  p.head_size = *rc::gen::inRange<int64_t>(1, p.length > 50 ? 33 : 257);
  p.kind = *rc::gen::element(MaskKind::kCausal, MaskKind::kFull, MaskKind::kLocalSliding,
                             MaskKind::kChunk);
  p.window = *rc::gen::inRange<int64_t>(1, p.length + 1);
  p.soft_cap = *rc::gen::element(0.0f, 2.0f);
  p.has_sinks = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>()) {
    const auto lengths =
        *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(1, p.length + 1));
    int32_t id = 0;
    for (int64_t length : lengths) p.segments.insert(p.segments.end(), length, ++id % 4);
    p.segments.resize(p.length, 0);
  }
  p.order = random_runs(p.length);
  for (const Run& run : random_runs(p.length)) {
    if (p.blocks.empty() || *rc::gen::arbitrary<bool>()) p.blocks.emplace_back();
    p.blocks.back().push_back(run);
  }
  p.offset = *rc::gen::inRange<int64_t>(0, 16);
  p.q = random_floats(p.length * p.query_heads() * p.head_size, 1);
  p.k = random_floats(p.length * p.kv_heads * p.head_size, 2);
  p.v = random_floats(p.length * p.kv_heads * p.head_size, 3);
  p.dout = random_floats(p.length * p.query_heads() * p.head_size, 4);
  if (p.has_sinks) p.sinks = random_floats(p.query_heads(), 5);
  return p;
}

// Rows in storage order, at any alignment, with NaN around and between them.
class Rows {
 public:
  Rows(const Problem& p, const std::vector<Run>& runs, int64_t heads,
       const std::vector<float>* natural)
      : runs_(runs), heads_(heads), size_(p.head_size), row_(heads * size_ + 3), at_(p.offset + 1) {
    data_.assign(count() * row_ + p.offset + 2, kNan);
    for (int64_t i = 0; i < count(); ++i) {
      for (int64_t x = 0; x < heads_ * size_; ++x) {
        const int64_t from = position_of(runs_, i) * heads_ * size_ + x;
        data_[at_ + i * row_ + x] = natural == nullptr ? 0 : (*natural)[from];
      }
    }
  }
  int64_t count() const { return count_rows(runs_); }
  View<float, 3> view() { return {data_.data() + at_, {count(), heads_, size_}, {row_, size_, 1}}; }
  // Copies the rows to their positions; the frame must still be NaN.
  void take(std::vector<float>& natural) {
    int64_t in_frame = 0;
    for (float x : data_) in_frame += std::isnan(x);
    int64_t in_rows = 0;
    for (int64_t i = 0; i < count(); ++i) {
      for (int64_t x = 0; x < heads_ * size_; ++x) {
        const float value = data_[at_ + i * row_ + x];
        in_rows += std::isnan(value);
        natural[position_of(runs_, i) * heads_ * size_ + x] = value;
      }
    }
    RC_ASSERT(in_frame - in_rows == static_cast<int64_t>(data_.size()) - count() * heads_ * size_);
  }

 private:
  std::vector<Run> runs_;
  int64_t heads_, size_, row_, at_;
  std::vector<float> data_;
};

// By position: out, dq [S, H, D]; dk, dv [S, K, D]; lse, delta [S, H].
struct Result {
  std::vector<float> out, dq, dk, dv, lse, delta;
};

// Attends to the blocks one after the other. Given `rows_of`, the backward pass takes lse and delta
// from there.
Result attend_by_blocks(const Problem& p, const std::vector<Run>& order,
                        const std::vector<std::vector<Run>>& blocks,
                        const Result* rows_of = nullptr) {
  const int64_t heads = p.query_heads(), rows = p.length;
  AttentionOptions options;
  options.scale = 1 / std::sqrt(static_cast<float>(p.head_size));
  options.soft_cap = p.soft_cap;
  options.queries_per_kv = p.group;
  Rows q(p, order, heads, &p.q), dout(p, order, heads, &p.dout), acc(p, order, heads, nullptr);
  Rows out(p, order, heads, nullptr), dq(p, order, heads, nullptr);
  std::vector<float> max(heads * rows), sum(max), lse(max), delta(max);
  const auto stat = [&](std::vector<float>& x) { return View<float, 2>(x.data(), {heads, rows}); };
  const auto segments_of = [&](const std::vector<Run>& runs) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; !p.segments.empty() && i < count_rows(runs); ++i) {
      ids.push_back(p.segments[position_of(runs, i)]);
    }
    return ids;
  };
  const std::vector<int32_t> query_segments = segments_of(order);
  const AttentionState state{acc.view(), stat(max), stat(sum)};
  reset(state);
  Result result{
      p.q, p.q, p.k, p.v, std::vector<float>(heads * rows), std::vector<float>(heads * rows)};
  const auto for_blocks = [&](const auto& body) {
    for (const std::vector<Run>& runs : blocks) {
      const std::vector<int32_t> ids = segments_of(runs);
      Rows k(p, runs, p.kv_heads, &p.k), v(p, runs, p.kv_heads, &p.v);
      body(k, v, BlockMask{{order, query_segments}, {runs, ids}, p.kind, p.window}, runs);
    }
  };
  for_blocks([&](Rows& k, Rows& v, const BlockMask& mask, const auto&) {
    attend<float>(q.view(), k.view(), v.view(), mask, options, state);
  });
  finish<float>(state, p.sinks, out.view(), stat(lse));
  attention_delta<float>(out.view(), dout.view(), stat(delta));
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t at = position_of(order, i);
    for (int64_t h = 0; h < heads; ++h) {
      if (rows_of != nullptr) {
        lse[h * rows + i] = rows_of->lse[at * heads + h];
        delta[h * rows + i] = rows_of->delta[at * heads + h];
      }
      result.lse[at * heads + h] = lse[h * rows + i];
      result.delta[at * heads + h] = delta[h * rows + i];
    }
  }
  for_blocks([&](Rows& k, Rows& v, const BlockMask& mask, const std::vector<Run>& runs) {
    Rows dk(p, runs, p.kv_heads, nullptr), dv(p, runs, p.kv_heads, nullptr);
    attend_backward<float>(q.view(), k.view(), v.view(), dout.view(), stat(lse), stat(delta), mask,
                           options, {dq.view(), dk.view(), dv.view()});
    dk.take(result.dk);
    dv.take(result.dv);
  });
  out.take(result.out);
  dq.take(result.dq);
  return result;
}

bool near(double a, double b) {
  return a == b || std::abs(a - b) <= 1e-5 * (1 + std::abs(b));  // false for NaN
}
template <class A, class B>
bool near(const std::vector<A>& a, const std::vector<B>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!near(double{a[i]}, double{b[i]})) return false;
  }
  return true;
}
template <class Other>
void expect_near(const Result& a, const Other& b) {
  RC_ASSERT(near(a.out, b.out));
  RC_ASSERT(near(a.dq, b.dq));
  RC_ASSERT(near(a.dk, b.dk));
  RC_ASSERT(near(a.dv, b.dv));
}

template <class Body>
void on_every_isa(Isa from, const Body& body) {
  for (Isa isa : {Isa::kRef, Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (isa < from || isa > detected_isa()) continue;
    setenv("ODYSSEY_MAX_ISA", std::string(name_of(isa)).c_str(), 1);
    RC_LOG() << name_of(isa) << "\n";
    body();
  }
  unsetenv("ODYSSEY_MAX_ISA");
}

std::vector<std::vector<Run>> one_block(int64_t length) {
  return {{{0, length, 1}}};
}

RC_GTEST_PROP(BlockAttentionProperties, AnySplitOfTheKeysEqualsDense, ()) {
  const Problem p = random_problem();
  DenseAttentionInput in;
  in.sequence_length = p.length;
  in.query_heads = p.query_heads();
  in.kv_heads = p.kv_heads;
  in.head_size = p.head_size;
  in.q = p.q;
  in.k = p.k;
  in.v = p.v;
  in.dout = p.dout;
  in.segments = p.segments;
  in.sinks = p.sinks;
  in.kind = p.kind;
  in.window = p.window;
  in.scale = 1 / std::sqrt(static_cast<double>(p.head_size));
  in.soft_cap = p.soft_cap;
  const DenseAttentionOutput expected = dense_attention(in);
  on_every_isa(Isa::kRef, [&] {
    const Result result = attend_by_blocks(p, p.order, p.blocks);
    expect_near(result, expected);
    for (int64_t h = 0; h < p.query_heads(); ++h) {
      for (int64_t i = 0; i < p.length; ++i) {
        const double lse = expected.lse[h * p.length + i];
        const double actual = result.lse[i * p.query_heads() + h];
        RC_ASSERT(near(actual, lse));
      }
    }
  });
}

RC_GTEST_PROP(BlockAttentionProperties, StorageOrderAndSplitChangeOnlyRounding, ()) {
  const Problem p = random_problem();
  on_every_isa(Isa::kPortable, [&] {
    const std::vector<Run> natural{{0, p.length, 1}};
    const Result one = attend_by_blocks(p, natural, one_block(p.length));
    const Result other = attend_by_blocks(p, p.order, p.blocks);
    expect_near(other, one);
    RC_ASSERT(near(other.lse, one.lse));
  });
}

// NaN in the rows of one key and of all queries that see nothing: what is computed from other pairs
// stays.
RC_GTEST_PROP(BlockAttentionProperties, NanInHiddenRowsDoesNotMatter, ()) {
  const Problem p = random_problem();
  const int64_t key = *rc::gen::inRange<int64_t>(0, p.length);
  Problem damaged = p;
  const auto fill = [&](std::vector<float>& x, int64_t heads, int64_t row) {
    std::fill_n(x.begin() + row * heads * p.head_size, heads * p.head_size, kNan);
  };
  fill(damaged.k, p.kv_heads, key);
  fill(damaged.v, p.kv_heads, key);
  for (int64_t i = 0; i < p.length; ++i) {
    bool sees_any = false;
    for (int64_t j = 0; j < p.length; ++j) sees_any = sees_any || p.sees(i, j);
    if (sees_any) continue;
    fill(damaged.q, p.query_heads(), i);
    fill(damaged.dout, p.query_heads(), i);
  }
  on_every_isa(Isa::kPortable, [&] {
    const Result before = attend_by_blocks(p, p.order, p.blocks);
    const Result after = attend_by_blocks(damaged, p.order, p.blocks, &before);
    const auto expect_near_rows = [&](const std::vector<float>& a, const std::vector<float>& b,
                                      int64_t heads, int64_t row) {
      for (int64_t x = row * heads * p.head_size; x < (row + 1) * heads * p.head_size; ++x) {
        RC_ASSERT(near(a[x], b[x]));
      }
    };
    for (int64_t i = 0; i < p.length; ++i) {
      if (i != key) {
        expect_near_rows(after.dk, before.dk, p.kv_heads, i);
        expect_near_rows(after.dv, before.dv, p.kv_heads, i);
      }
      if (p.sees(i, key)) continue;
      expect_near_rows(after.out, before.out, p.query_heads(), i);
      expect_near_rows(after.dq, before.dq, p.query_heads(), i);
    }
  });
}

}  // namespace
}  // namespace odyssey
