// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "odyssey/base/random.h"
#include "odyssey/kernels/activation.h"
#include "odyssey/kernels/adamw.h"
#include "odyssey/kernels/block_attention.h"
#include "odyssey/kernels/cross_entropy.h"
#include "odyssey/kernels/elementwise.h"
#include "odyssey/kernels/matmul.h"
#include "odyssey/kernels/rms_norm.h"
#include "odyssey/kernels/rope.h"

namespace odyssey {
namespace {

using Call = std::function<void()>;

// Drawing numbers costs 50 ns each, so a pattern is drawn once and repeated. Its length is a prime:
// no row of a tensor repeats the one before.
template <class T>
const std::vector<T>& random_pattern() {
  static const std::vector<T> pattern = [] {
    constexpr int64_t kLength = 262139;
    const Random random(1, sizeof(T));
    std::vector<T> values;
    for (int64_t i = 0; i < kLength; ++i) {
      values.push_back(T(static_cast<float>(random.normal(static_cast<uint64_t>(i)))));
    }
    return values;
  }();
  return pattern;
}

template <class T>
class AttentionBench {
 public:
  explicit AttentionBench(const BenchProblem& p)
      : p_(p),
        q_(random_buffer<T>(query_size(), 0)),
        k_(random_buffer<T>(key_size(), 1001)),
        v_(random_buffer<T>(key_size(), 20011)),
        out_(query_size()),
        accumulator_(p.sequence * p.heads * p.head_size),
        max_(p.heads * p.sequence),
        sum_(p.heads * p.sequence),
        lse_(p.batch * p.heads * p.sequence),
        run_{{0, p.sequence, 1}} {
    options_.scale = 1 / std::sqrt(static_cast<float>(p.head_size));
    options_.queries_per_kv = p.heads / p.kv_heads;
    mask_.queries.runs = run_;
    mask_.keys.runs = run_;
    mask_.kind = p.mask == "causal" ? MaskKind::kCausal : MaskKind::kFull;
    if (p.direction == "forward") return;
    forward();
    dout_ = random_buffer<T>(query_size(), 300007);
    delta_ = Buffer<float>(p.heads * p.sequence);
    dq_ = Buffer<float>(p.sequence * p.heads * p.head_size);
    dk_ = Buffer<float>(p.sequence * p.kv_heads * p.head_size);
    dv_ = Buffer<float>(p.sequence * p.kv_heads * p.head_size);
  }

  void forward() {
    const AttentionState state{view(accumulator_, p_.heads), per_row(max_, 0), per_row(sum_, 0)};
    for (int64_t b = 0; b < p_.batch; ++b) {
      reset(state);
      attend_and_finish<T>(row(q_, b, p_.heads), row(k_, b, p_.kv_heads), row(v_, b, p_.kv_heads),
                           mask_, options_, state, {}, row(out_, b, p_.heads), per_row(lse_, b));
    }
  }
  // Batch rows share the gradient buffers: what counts is the work.
  void backward() {
    for (int64_t b = 0; b < p_.batch; ++b) {
      const View<T, 3> dout = row(dout_, b, p_.heads);
      attention_delta<T>(row(out_, b, p_.heads), dout, per_row(delta_, 0));
      attend_backward<T>(row(q_, b, p_.heads), row(k_, b, p_.kv_heads), row(v_, b, p_.kv_heads),
                         dout, per_row(lse_, b), per_row(delta_, 0), mask_, options_,
                         {view(dq_, p_.heads), view(dk_, p_.kv_heads), view(dv_, p_.kv_heads),
                          /*fresh_queries=*/true, /*fresh_keys=*/true});
    }
  }

 private:
  int64_t query_size() const { return p_.batch * p_.sequence * p_.heads * p_.head_size; }
  int64_t key_size() const { return p_.batch * p_.sequence * p_.kv_heads * p_.head_size; }
  // Batch row b of [B, S, heads, D].
  View<T, 3> row(Buffer<T>& buffer, int64_t b, int64_t heads) const {
    return {buffer.data() + b * p_.sequence * heads * p_.head_size,
            {p_.sequence, heads, p_.head_size}};
  }
  View<float, 3> view(Buffer<float>& buffer, int64_t heads) const {
    return {buffer.data(), {p_.sequence, heads, p_.head_size}};
  }
  // Batch row b of [B, H, S].
  View<float, 2> per_row(Buffer<float>& buffer, int64_t b) const {
    return {buffer.data() + b * p_.heads * p_.sequence, {p_.heads, p_.sequence}};
  }

  BenchProblem p_;
  Buffer<T> q_, k_, v_, out_, dout_;
  Buffer<float> accumulator_, max_, sum_, lse_, delta_, dq_, dk_, dv_;
  std::array<Run, 1> run_;
  BlockMask mask_;
  AttentionOptions options_;
};

template <class T>
Call attention_call(const BenchProblem& p) {
  const auto bench = std::make_shared<AttentionBench<T>>(p);
  if (p.direction == "forward") return [bench] { bench->forward(); };
  return [bench] { bench->backward(); };
}

// Owned by the call that captures it.
template <class T>
std::shared_ptr<Buffer<T>> shared(Buffer<T> buffer) {
  return std::make_shared<Buffer<T>>(std::move(buffer));
}

template <class T>
Call matmul_call(const BenchProblem& p) {
  const int64_t t = p.t, n = p.n, k = p.k;
  if (p.direction == "forward") {
    const auto x = shared(random_buffer<T>(t * k, 0)), w = shared(random_buffer<T>(n * k, 1001));
    const auto y = shared(Buffer<T>(t * n));
    return [=] { linear<T>({x->data(), {t, k}}, {w->data(), {n, k}}, {y->data(), {t, n}}); };
  }
  const auto dy = shared(random_buffer<T>(t * n, 20011));
  if (p.direction == "backward_input") {
    const auto w = shared(random_buffer<T>(n * k, 1001));
    const auto dx = shared(Buffer<T>(t * k));
    return [=] {
      linear_backward_input<T>({dy->data(), {t, n}}, {w->data(), {n, k}}, {dx->data(), {t, k}},
                               /*accumulate=*/false);
    };
  }
  const auto x = shared(random_buffer<T>(t * k, 0));
  const auto dw = shared(Buffer<float>(n * k));
  return [=] {
    linear_backward_weight<T>({dy->data(), {t, n}}, {x->data(), {t, k}}, {dw->data(), {n, k}},
                              /*accumulate=*/true);
  };
}

template <class T>
Call rms_norm_call(const BenchProblem& p) {
  const int64_t rows = p.rows, width = p.width;
  const auto x = shared(random_buffer<T>(rows * width, 0));
  const auto w = shared(random_buffer<T>(width, 1001));
  const auto y = shared(Buffer<T>(rows * width));
  const auto inverse_rms = shared(Buffer<float>(rows));
  const Call forward = [=] {
    rms_norm<T>({x->data(), {rows, width}}, w->span(), {}, View<T, 2>(y->data(), {rows, width}),
                inverse_rms->span());
  };
  if (p.direction == "forward") return forward;
  forward();
  const auto dy = shared(random_buffer<T>(rows * width, 20011));
  const auto dw = shared(Buffer<float>(width));
  return [=] {
    rms_norm_backward<T>({dy->data(), {rows, width}}, {x->data(), {rows, width}}, w->span(), {},
                         inverse_rms->span(), /*accumulate=*/false,
                         View<T, 2>(y->data(), {rows, width}), dw->span());
  };
}

template <class T>
Call rope_call(const BenchProblem& p) {
  const int64_t rows = p.rows, heads = p.width / kRopeHeadSize;
  const bool inverse = p.direction == "backward";
  const auto x = shared(random_buffer<T>(rows * p.width, 0));
  const auto positions = shared(Buffer<int32_t>(rows));
  for (int64_t t = 0; t < rows; ++t) (*positions)[t] = static_cast<int32_t>(t);
  const std::vector<float> frequencies = rope_frequencies(kRopeHeadSize, 500000);
  return [=] {
    rope<T>({x->data(), {rows, heads, kRopeHeadSize}}, positions->span(), frequencies, inverse);
  };
}

template <class T>
Call swiglu_call(const BenchProblem& p) {
  const int64_t rows = p.rows, width = p.width;
  const auto gate_up = shared(random_buffer<T>(rows * 2 * width, 0));
  if (p.direction == "forward") {
    const auto out = shared(Buffer<T>(rows * width));
    return [=] {
      gated_activation<T>(GatedKind::kSilu, {gate_up->data(), {rows, 2 * width}},
                          {out->data(), {rows, width}});
    };
  }
  const auto dout = shared(random_buffer<T>(rows * width, 20011));
  const auto gradient = shared(Buffer<T>(rows * 2 * width));
  return [=] {
    gated_activation_backward<T>(GatedKind::kSilu, {dout->data(), {rows, width}},
                                 {gate_up->data(), {rows, 2 * width}},
                                 {gradient->data(), {rows, 2 * width}});
  };
}

template <class T>
Call cross_entropy_call(const BenchProblem& p) {
  const int64_t rows = p.rows, width = p.width;
  const auto logits = shared(random_buffer<float>(rows * width, 0));
  const auto targets = shared(Buffer<int32_t>(rows));
  const auto weights = shared(Buffer<float>(rows));
  const Random random(1, 3);
  for (int64_t r = 0; r < rows; ++r) {
    (*targets)[r] = static_cast<int32_t>(
        random.integer(static_cast<uint64_t>(r), static_cast<uint64_t>(width)));
    (*weights)[r] = 1;
  }
  const View<const float, 2> view(logits->data(), {rows, width});
  // Names `logits` so that the call owns it.
  if (p.direction == "forward") {
    return [=] { (void)logits, cross_entropy(view, targets->span(), weights->span()); };
  }
  const auto gradient = shared(Buffer<T>(rows * width));
  return [=] {
    (void)logits, cross_entropy<T>(view, targets->span(), weights->span(),
                                   View<T, 2>(gradient->data(), {rows, width}));
  };
}

Call adamw_call(const BenchProblem& p) {
  const int64_t size = p.rows * p.width;
  const auto gradient = shared(random_buffer<float>(size, 0));
  const auto parameter = shared(random_buffer<float>(size, 1001));
  const auto mu = shared(Buffer<float>(size)), nu = shared(Buffer<float>(size));
  return [=, step = int64_t{0}]() mutable {
    adamw({}, ++step, 1.0, gradient->span(), parameter->span(), mu->span(), nu->span());
  };
}

template <class T>
Call make_call(const BenchProblem& p) {
  switch (p.kernel) {
    case BenchKernel::kAttention:
      return attention_call<T>(p);
    case BenchKernel::kMatmul:
      return matmul_call<T>(p);
    case BenchKernel::kRmsNorm:
      return rms_norm_call<T>(p);
    case BenchKernel::kRope:
      return rope_call<T>(p);
    case BenchKernel::kSwiglu:
      return swiglu_call<T>(p);
    case BenchKernel::kCrossEntropy:
      return cross_entropy_call<T>(p);
    case BenchKernel::kAdamw:
      return adamw_call(p);
  }
  return {};
}

}  // namespace

template <class T>
Buffer<T> random_buffer(int64_t size, int64_t start) {
  const std::vector<T>& pattern = random_pattern<T>();
  const int64_t length = static_cast<int64_t>(pattern.size());
  Buffer<T> buffer(size);
  int64_t from = start % length;
  for (int64_t done = 0; done < size;) {
    const int64_t count = std::min(size - done, length - from);
    std::copy_n(pattern.begin() + from, count, buffer.data() + done);
    done += count;
    from = 0;
  }
  return buffer;
}

template Buffer<float> random_buffer<float>(int64_t, int64_t);
template Buffer<bf16> random_buffer<bf16>(int64_t, int64_t);

std::function<void()> make_bench_call(const BenchProblem& problem) {
  return problem.is_bf16() ? make_call<bf16>(problem) : make_call<float>(problem);
}

}  // namespace odyssey
