// SPDX-License-Identifier: Apache-2.0
// What measured attention calls read and write: random inputs, one batch row.
#pragma once
#include "apps/bench_tensors.h"
#include "odyssey/config/run_config.h"

namespace odyssey {

// q, out, dout, dq [rows, H, D]; k, v, dk, dv [rows, K, D].
template <class T>
struct AttentionTensors {
  int64_t query_width, key_width;  // H * D, K * D
  Buffer<T> q, k, v, dout, out, dq, dk, dv;

  AttentionTensors(int64_t rows, const ModelConfig& model)
      : query_width(model.query_heads * model.head_size),
        key_width(model.kv_heads * model.head_size),
        q(random_buffer<T>(rows * query_width, 0)),
        k(random_buffer<T>(rows * key_width, 1001)),
        v(random_buffer<T>(rows * key_width, 20011)),
        dout(random_buffer<T>(rows * query_width, 50021)),
        out(rows * query_width),
        dq(rows * query_width),
        dk(rows * key_width),
        dv(rows * key_width) {}
};

}  // namespace odyssey
