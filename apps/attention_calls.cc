// SPDX-License-Identifier: Apache-2.0
#include "apps/attention_calls.h"

#include <algorithm>
#include <memory>

#include "apps/attention_run.h"
#include "apps/bench_tensors.h"
#include "odyssey/comm/mesh.h"
#include "odyssey/context/parallel_attention.h"

namespace odyssey {
namespace {

// Of this rank: q, out, dout, dq [T, H, D]; k, v, dk, dv [T, K, D]; T: the most of any row.
template <class T>
struct Tensors {
  Tensors(int64_t rows, const HeadMap& heads, int64_t head_size)
      : q(random_buffer<T>(rows * heads.query_heads() * head_size, 0)),
        k(random_buffer<T>(rows * heads.kv_heads() * head_size, 1001)),
        v(random_buffer<T>(rows * heads.kv_heads() * head_size, 20011)),
        dout(random_buffer<T>(rows * heads.query_heads() * head_size, 50021)),
        out(q.size()),
        dq(q.size()),
        dk(k.size()),
        dv(k.size()) {}

  Buffer<T> q, k, v, dout, out, dq, dk, dv;
};

template <class T>
class Call {
 public:
  Call(Group& group, const BenchAttentionRow& row, std::shared_ptr<Tensors<T>> tensors)
      : layout_(row.layout()),
        mesh_(group, 1, 1, layout_.ring_size(), layout_.ulysses_size()),
        attention_(layout_, options(row), mesh_.ring(), mesh_.ulysses()),
        tensors_(std::move(tensors)),
        rows_(layout_.placement.local_count(mesh_.ring_index(), mesh_.ulysses_index())) {}

  void run() {
    Tensors<T>& t = *tensors_;
    attention_.forward(queries(t.q), keys(t.k), keys(t.v), queries(t.out));
    attention_.backward(queries(t.dout), queries(t.dq), keys(t.dk), keys(t.dv));
  }

 private:
  static ParallelAttentionOptions options(const BenchAttentionRow& row) {
    ParallelAttentionOptions options;
    options.scale = attention_scale(row.config, row.config.model.head_size);
    options.soft_cap = row.config.model.attention_soft_cap;
    return options;
  }
  View<T, 4> queries(Buffer<T>& x) const {
    return {x.data(), {1, rows_, layout_.heads.query_heads(), layout_.head_size}};
  }
  View<T, 4> keys(Buffer<T>& x) const {
    return {x.data(), {1, rows_, layout_.heads.kv_heads(), layout_.head_size}};
  }

  AttentionLayout layout_;
  Mesh mesh_;
  ParallelAttention<T> attention_;
  std::shared_ptr<Tensors<T>> tensors_;
  int64_t rows_;
};

template <class T>
std::vector<std::function<void()>> typed_calls(Group& group,
                                               const std::vector<BenchAttentionRow>& rows) {
  int64_t most = 0;
  for (const BenchAttentionRow& row : rows) {
    most = std::max(most, row.layout().placement.most_local_rows());
  }
  const AttentionLayout first = rows.front().layout();
  const auto tensors = std::make_shared<Tensors<T>>(most, first.heads, first.head_size);
  std::vector<std::function<void()>> calls;
  for (const BenchAttentionRow& row : rows) {
    const auto call = std::make_shared<Call<T>>(group, row, tensors);
    calls.emplace_back([call] { call->run(); });
  }
  return calls;
}

}  // namespace

std::vector<std::function<void()>> attention_calls(Group& group,
                                                   const std::vector<BenchAttentionRow>& rows) {
  if (rows.empty()) return {};
  return rows.front().config.model.data_type == DataType::kFloat32 ? typed_calls<float>(group, rows)
                                                                   : typed_calls<bf16>(group, rows);
}

}  // namespace odyssey
