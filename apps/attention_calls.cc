// SPDX-License-Identifier: Apache-2.0
#include "apps/attention_calls.h"

#include <algorithm>
#include <memory>

#include "apps/attention_run.h"
#include "apps/attention_tensors.h"
#include "odyssey/comm/mesh.h"
#include "odyssey/context/parallel_attention.h"

namespace odyssey {
namespace {

template <class T>
class Call {
 public:
  Call(Group& group, const BenchAttentionRow& row, std::shared_ptr<AttentionTensors<T>> tensors)
      : layout_(row.layout()),
        mesh_(group, 1, 1, layout_.ring_size(), layout_.ulysses_size()),
        attention_(layout_, call_options(row.config, layout_.head_size), mesh_.ring(),
                   mesh_.ulysses()),
        tensors_(std::move(tensors)),
        rows_(layout_.placement.local_count(mesh_.ring_index(), mesh_.ulysses_index())) {}

  void run() {
    AttentionTensors<T>& t = *tensors_;
    attention_.forward(queries(t.q), keys(t.k), keys(t.v), queries(t.out));
    attention_.backward(queries(t.dout), queries(t.dq), keys(t.dk), keys(t.dv));
  }

 private:
  View<T, 4> queries(Buffer<T>& x) const {
    return {x.data(), {1, rows_, layout_.heads.query_heads(), layout_.head_size}};
  }
  View<T, 4> keys(Buffer<T>& x) const {
    return {x.data(), {1, rows_, layout_.heads.kv_heads(), layout_.head_size}};
  }

  AttentionLayout layout_;
  Mesh mesh_;
  ParallelAttention<T> attention_;
  std::shared_ptr<AttentionTensors<T>> tensors_;
  int64_t rows_;
};

template <class T>
std::vector<std::function<void()>> typed_calls(Group& group,
                                               const std::vector<BenchAttentionRow>& rows) {
  int64_t most = 0;
  for (const BenchAttentionRow& row : rows) {
    most = std::max(most, row.layout().placement.most_local_rows());
  }
  const auto tensors = std::make_shared<AttentionTensors<T>>(most, rows.front().config.model);
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
