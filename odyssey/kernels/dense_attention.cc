// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/dense_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace odyssey {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One query row of one head: its scores, probabilities, and what follows from them.
class DenseRow {
 public:
  DenseRow(const DenseAttentionInput& input, DenseAttentionOutput& output)
      : in_(input), out_(output), score_(input.sequence_length), p_(input.sequence_length) {}

  void run(int64_t h, int64_t i) {
    const int64_t g = h / (in_.query_heads / in_.kv_heads);
    forward(h, g, i);
    if (!in_.dout.empty()) backward(h, g, i);
  }

 private:
  bool sees(int64_t i, int64_t j) const {
    if (!in_.segments.empty() && (in_.segments[i] != in_.segments[j] || in_.segments[i] == 0)) {
      return false;
    }
    return visible(in_.kind, in_.window, i, j);
  }
  int64_t at_query(int64_t h, int64_t i) const { return (i * in_.query_heads + h) * in_.head_size; }
  int64_t at_key(int64_t g, int64_t j) const { return (j * in_.kv_heads + g) * in_.head_size; }

  void forward(int64_t h, int64_t g, int64_t i) {
    const int64_t length = in_.sequence_length, size = in_.head_size;
    double most = in_.sinks.empty() ? -kInfinity : double{in_.sinks[h]};
    for (int64_t j = 0; j < length; ++j) {
      score_[j] = -kInfinity;
      if (!sees(i, j)) continue;
      double s = 0;
      for (int64_t d = 0; d < size; ++d) {
        s += double{in_.q[at_query(h, i) + d]} * double{in_.k[at_key(g, j) + d]};
      }
      s *= in_.scale;
      if (in_.soft_cap != 0) s = in_.soft_cap * std::tanh(s / in_.soft_cap);
      score_[j] = s;
      most = std::max(most, s);
      out_.max_logits[h] = std::max(out_.max_logits[h], s);
    }
    double sum = in_.sinks.empty() ? 0 : std::exp(double{in_.sinks[h]} - most);
    for (int64_t j = 0; j < length; ++j) {
      p_[j] = score_[j] == -kInfinity ? 0 : std::exp(score_[j] - most);
      sum += p_[j];
    }
    out_.lse[h * length + i] = sum == 0 ? -kInfinity : most + std::log(sum);
    if (sum == 0) return;
    for (int64_t j = 0; j < length; ++j) {
      if (p_[j] == 0) continue;
      p_[j] /= sum;
      for (int64_t d = 0; d < size; ++d) {
        out_.out[at_query(h, i) + d] += p_[j] * double{in_.v[at_key(g, j) + d]};
      }
    }
  }

  void backward(int64_t h, int64_t g, int64_t i) {
    const int64_t size = in_.head_size;
    const float* dout = &in_.dout[at_query(h, i)];
    double delta = 0;
    for (int64_t d = 0; d < size; ++d) delta += double{dout[d]} * out_.out[at_query(h, i) + d];
    const double lse = out_.lse[h * in_.sequence_length + i];
    if (!in_.sinks.empty()) out_.dsinks[h] -= std::exp(double{in_.sinks[h]} - lse) * delta;
    for (int64_t j = 0; j < in_.sequence_length; ++j) {
      if (p_[j] == 0) continue;
      double dp = 0;
      for (int64_t d = 0; d < size; ++d) dp += double{dout[d]} * double{in_.v[at_key(g, j) + d]};
      double ds = p_[j] * (dp - delta);
      if (in_.soft_cap != 0) ds *= 1 - std::pow(score_[j] / in_.soft_cap, 2);
      ds *= in_.scale;
      for (int64_t d = 0; d < size; ++d) {
        out_.dq[at_query(h, i) + d] += ds * double{in_.k[at_key(g, j) + d]};
        out_.dk[at_key(g, j) + d] += ds * double{in_.q[at_query(h, i) + d]};
        out_.dv[at_key(g, j) + d] += p_[j] * double{dout[d]};
      }
    }
  }

  const DenseAttentionInput& in_;
  DenseAttentionOutput& out_;
  std::vector<double> score_, p_;
};

}  // namespace

DenseAttentionOutput dense_attention(const DenseAttentionInput& input) {
  DenseAttentionOutput output;
  output.out.assign(input.q.size(), 0);
  output.lse.assign(input.query_heads * input.sequence_length, 0);
  output.max_logits.assign(input.query_heads, -kInfinity);
  if (!input.dout.empty()) {
    output.dq.assign(input.q.size(), 0);
    output.dk.assign(input.k.size(), 0);
    output.dv.assign(input.v.size(), 0);
    output.dsinks.assign(input.sinks.size(), 0);
  }
  DenseRow row(input, output);
  for (int64_t h = 0; h < input.query_heads; ++h) {
    for (int64_t i = 0; i < input.sequence_length; ++i) row.run(h, i);
  }
  return output;
}

}  // namespace odyssey
