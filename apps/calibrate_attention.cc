// SPDX-License-Identifier: Apache-2.0
#include "apps/calibrate_attention.h"

#include <algorithm>
#include <cmath>

#include "apps/bench_tensors.h"
#include "odyssey/kernels/block_attention.h"
#include "odyssey/plan/tile_pairs.h"

namespace odyssey {
namespace {

template <class T>
class TypedCalls final : public BlockCalls {
 public:
  TypedCalls(int64_t head_size, const std::vector<BlockShape>& blocks) : head_size_(head_size) {
    int64_t queries = 0, keys = 0;  // elements of the largest
    int64_t rows = 0;
    for (const BlockShape& shape : blocks) {
      queries = std::max(queries, shape.queries * shape.query_heads * head_size_);
      keys = std::max(keys, shape.keys * shape.kv_heads * head_size_);
      rows = std::max(rows, shape.queries * shape.query_heads);
    }
    q_ = random_buffer<T>(queries, 0);
    dout_ = random_buffer<T>(queries, 50021);
    k_ = random_buffer<T>(keys, 1001);
    v_ = random_buffer<T>(keys, 20011);
    out_ = Buffer<T>(queries);
    accumulator_ = Buffer<float>(queries);
    dq_ = Buffer<float>(queries);
    dk_ = Buffer<float>(keys);
    dv_ = Buffer<float>(keys);
    for (Buffer<float>* stat : {&max_, &sum_, &lse_, &delta_}) *stat = Buffer<float>(rows);
  }

  void forward(const BlockShape& shape) override {
    const auto [queries, keys] = runs(shape);
    const AttentionState state{query(accumulator_, shape), stat(max_, shape), stat(sum_, shape)};
    reset(state);
    attend_and_finish<T>(query(q_, shape), key(k_, shape), key(v_, shape),
                         mask(queries, keys, shape), options(shape), state, {}, query(out_, shape),
                         stat(lse_, shape));
  }

  void backward(const BlockShape& shape) override {
    const auto [queries, keys] = runs(shape);
    attend_backward<T>(query(q_, shape), key(k_, shape), key(v_, shape), query(dout_, shape),
                       stat(lse_, shape), stat(delta_, shape), mask(queries, keys, shape),
                       options(shape),
                       {query(dq_, shape), key(dk_, shape), key(dv_, shape),
                        /*fresh_queries=*/false, /*fresh_keys=*/true});
  }

 private:
  struct Runs {
    Run queries, keys;
  };
  // Queries behind all keys, or at the same positions.
  static Runs runs(const BlockShape& shape) {
    return {{shape.causal ? 0 : shape.keys, shape.queries, 1}, {0, shape.keys, 1}};
  }
  static BlockMask mask(const Run& queries, const Run& keys, const BlockShape& shape) {
    return {{{&queries, 1}, {}},
            {{&keys, 1}, {}},
            shape.causal ? MaskKind::kCausal : MaskKind::kFull,
            0};
  }
  AttentionOptions options(const BlockShape& shape) const {
    AttentionOptions options;
    options.scale = 1 / std::sqrt(static_cast<float>(head_size_));
    options.queries_per_kv = shape.query_heads / shape.kv_heads;
    return options;
  }
  template <class E>
  View<E, 3> query(Buffer<E>& x, const BlockShape& shape) {
    return {x.data(), {shape.queries, shape.query_heads, head_size_}};
  }
  template <class E>
  View<E, 3> key(Buffer<E>& x, const BlockShape& shape) {
    return {x.data(), {shape.keys, shape.kv_heads, head_size_}};
  }
  static View<float, 2> stat(Buffer<float>& x, const BlockShape& shape) {
    return {x.data(), {shape.query_heads, shape.queries}};
  }

  int64_t head_size_;
  Buffer<T> q_, dout_, k_, v_, out_;
  Buffer<float> accumulator_, dq_, dk_, dv_, max_, sum_, lse_, delta_;
};

}  // namespace

std::vector<BlockShape> block_shapes(const AttentionShape& shape, bool quick) {
  const int64_t h = shape.query_heads, k = shape.kv_heads, g = h / k;
  // Ulysses ranks have few heads, down to one of each kind.
  const int64_t few = std::max<int64_t>(1, g / 2);
  if (quick) {
    return {{128, 128, false, h, k}, {256, 256, false, h, k}, {512, 512, true, h, k},
            {128, 512, false, h, k}, {512, 128, false, h, k}, {256, 256, false, 1, 1}};
  }
  return {{128, 128, false, h, k},   {256, 256, false, h, k},   {512, 512, false, h, k},
          {1024, 1024, false, h, k}, {2048, 1024, false, h, k}, {1024, 2048, false, h, k},
          {512, 512, true, h, k},    {1024, 1024, true, h, k},  {2048, 2048, true, h, k},
          {1024, 1024, false, g, 1}, {1024, 1024, false, 1, 1}, {2048, 2048, true, few, 1},
          {2048, 2048, true, 1, 1},  {4096, 4096, true, few, 1}};
}

std::unique_ptr<BlockCalls> make_block_calls(const AttentionShape& shape,
                                             const std::vector<BlockShape>& blocks) {
  if (shape.data_type == DataType::kFloat32) {
    return std::make_unique<TypedCalls<float>>(shape.head_size, blocks);
  }
  return std::make_unique<TypedCalls<bf16>>(shape.head_size, blocks);
}

BlockRates fit_block_rates(const std::vector<BlockShape>& blocks, int64_t query_tile,
                           const std::vector<double>& seconds, FitQuality& quality) {
  std::vector<std::vector<double>> counts;
  for (const BlockShape& block : blocks) {
    const Run q{block.causal ? 0 : block.keys, block.queries, 1}, k{0, block.keys, 1};
    const auto pairs = static_cast<double>(visible_tile_pairs(
        {&q, 1}, {&k, 1}, block.causal ? MaskKind::kCausal : MaskKind::kFull, 0, query_tile));
    const auto heads = static_cast<double>(block.query_heads);
    counts.push_back({heads * pairs, heads * static_cast<double>(block.queries),
                      static_cast<double>(block.kv_heads * block.keys), 1});
  }
  const RateFit fit = fit_rates(counts, seconds);
  quality = fit.quality;
  return {fit.rates[0], fit.rates[1], fit.rates[2], fit.rates[3]};
}

}  // namespace odyssey
