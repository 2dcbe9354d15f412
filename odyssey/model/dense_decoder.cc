// SPDX-License-Identifier: Apache-2.0
#include "odyssey/model/dense_decoder.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "odyssey/base/error.h"

namespace odyssey {
namespace {

using Matrix = std::vector<std::vector<double>>;  // [rows][columns]

class DenseDecoder {
 public:
  DenseDecoder(const ModelConfig& config, const std::vector<ParameterGroup>& groups,
               std::span<const double> values, const DenseRow& row)
      : c_(config), groups_(groups), values_(values), row_(row) {
    int64_t offset = 0;
    for (const ParameterGroup& group : groups) {
      offsets_.push_back(offset);
      offset += group.size;
    }
  }

  double loss() {
    Matrix x;
    const Matrix table = matrix(0, "embedding");
    const double scale = c_.scale_embedding ? std::sqrt(static_cast<double>(c_.embedding)) : 1;
    for (int32_t token : row_.tokens) {
      x.push_back(table[token]);
      for (double& value : x.back()) value *= scale;
    }
    for (int64_t layer = 1; layer <= c_.layers; ++layer) run_layer(layer, x);
    const int64_t last = c_.tied_head ? 0 : c_.layers + 1;
    const Matrix norm = rms_norm(x, vector(last, "final_norm"));
    Matrix logits = product(norm, matrix(last, c_.tied_head ? "embedding" : "head"));
    const double cap = double{c_.logit_soft_cap};
    for (std::vector<double>& row : logits) {
      if (cap == 0) break;
      for (double& logit : row) logit = cap * std::tanh(logit / cap);
    }
    double sum = 0;
    for (size_t t = 0; t < logits.size(); ++t) {
      if (row_.weights[t] == 0) continue;
      double total = 0;
      for (double logit : logits[t]) total += std::exp(logit);
      sum += double{row_.weights[t]} * (std::log(total) - logits[t][row_.targets[t]]);
    }
    return sum;
  }

 private:
  std::vector<double> vector(int64_t g, const char* name) const {
    const ParameterTensor& tensor = groups_[g].tensor(name);
    const auto first = values_.begin() + offsets_[g] + tensor.offset;
    return {first, first + tensor.size()};
  }
  Matrix matrix(int64_t g, const char* name) const {
    const ParameterTensor& tensor = groups_[g].tensor(name);
    const std::vector<double> flat = vector(g, name);
    Matrix rows;
    for (int64_t r = 0; r < tensor.rows; ++r) {
      rows.emplace_back(flat.begin() + r * tensor.columns, flat.begin() + (r + 1) * tensor.columns);
    }
    return rows;
  }

  // y = x w^T
  static Matrix product(const Matrix& x, const Matrix& w) {
    Matrix y(x.size(), std::vector<double>(w.size()));
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t o = 0; o < w.size(); ++o) {
        for (size_t i = 0; i < x[t].size(); ++i) y[t][o] += x[t][i] * w[o][i];
      }
    }
    return y;
  }

  std::vector<double> normalized(const std::vector<double>& x, const std::vector<double>& w) const {
    double squares = 0;
    for (double value : x) squares += value * value;
    const double inverse =
        1 / std::sqrt(squares / static_cast<double>(x.size()) + double{c_.norm_epsilon});
    std::vector<double> y(x.size());
    for (size_t i = 0; i < x.size(); ++i)
      y[i] = x[i] * inverse * (c_.norm_adds_one ? 1 + w[i] : w[i]);
    return y;
  }
  Matrix rms_norm(const Matrix& x, const std::vector<double>& w) const {
    Matrix y;
    for (const std::vector<double>& row : x) y.push_back(normalized(row, w));
    return y;
  }

  const MaskRule& mask_of(int64_t layer) const {
    return c_.masks[(layer - 1) % static_cast<int64_t>(c_.masks.size())];
  }

  double frequency(int64_t layer, int64_t pair) const {
    const bool local = mask_of(layer).kind == MaskKind::kLocalSliding && c_.local_rope_theta != 0;
    const double plain =
        std::pow(local ? c_.local_rope_theta : c_.rope_theta,
                 -2.0 * static_cast<double>(pair) / static_cast<double>(c_.head_size));
    ODYSSEY_CHECK(c_.rope_scaling.factor == 1, "the dense decoder has no scaled RoPE");
    return plain;
  }

  // Head h of a projected row, normalised (qwen3) and turned.
  std::vector<double> head(const std::vector<double>& row, int64_t h, int64_t t, int64_t layer,
                           const char* norm) const {
    const int64_t size = c_.head_size, half = size / 2;
    std::vector<double> x(row.begin() + h * size, row.begin() + (h + 1) * size);
    if (norm == nullptr) return x;
    if (c_.qk_norm) x = normalized(x, vector(layer, norm));
    std::vector<double> y(size);
    for (int64_t i = 0; i < half; ++i) {
      const double angle = row_.positions[t] * frequency(layer, i);
      y[i] = x[i] * std::cos(angle) - x[i + half] * std::sin(angle);
      y[i + half] = x[i + half] * std::cos(angle) + x[i] * std::sin(angle);
    }
    return y;
  }

  // layer counts from 1: it is the layer's parameter group.
  bool sees(int64_t layer, int64_t i, int64_t j) const {
    if (row_.segments[i] != row_.segments[j] || row_.segments[i] == 0) return false;
    const MaskRule& mask = mask_of(layer);
    if (mask.kind == MaskKind::kFull) return true;
    if (j > i) return false;
    if (mask.kind == MaskKind::kLocalSliding) return i - j < mask.window;
    if (mask.kind == MaskKind::kChunk) return i / mask.window == j / mask.window;
    return true;
  }

  Matrix attention(const Matrix& qkv, int64_t layer) const {
    const auto length = static_cast<int64_t>(qkv.size());
    const int64_t size = c_.head_size, H = c_.query_heads, K = c_.kv_heads;
    Matrix out(length, std::vector<double>(H * size));
    for (int64_t h = 0; h < H; ++h) {
      const int64_t g = h / (H / K);
      Matrix q, k, v;
      for (int64_t t = 0; t < length; ++t) {
        q.push_back(head(qkv[t], h, t, layer, "query_norm"));
        k.push_back(head(qkv[t], H + g, t, layer, "key_norm"));
        v.push_back(head(qkv[t], H + K + g, t, layer, nullptr));
      }
      for (int64_t i = 0; i < length; ++i) attend(layer, h, i, q[i], k, v, out[i]);
    }
    return out;
  }

  void attend(int64_t layer, int64_t h, int64_t i, const std::vector<double>& q, const Matrix& k,
              const Matrix& v, std::vector<double>& out) const {
    const double scale = c_.attention_scale != 0 ? double{c_.attention_scale}
                                                 : 1 / std::sqrt(static_cast<double>(c_.head_size));
    std::vector<double> p(k.size());
    double total = c_.attention_sink ? std::exp(vector(layer, kSinks)[h]) : 0;
    for (size_t j = 0; j < k.size(); ++j) {
      if (!sees(layer, i, static_cast<int64_t>(j))) continue;
      double s = 0;
      for (size_t d = 0; d < q.size(); ++d) s += q[d] * k[j][d];
      s *= scale;
      if (c_.attention_soft_cap != 0) {
        s = double{c_.attention_soft_cap} * std::tanh(s / double{c_.attention_soft_cap});
      }
      p[j] = std::exp(s);
      total += p[j];
    }
    if (total == 0) return;
    for (size_t j = 0; j < k.size(); ++j) {
      for (size_t d = 0; d < q.size(); ++d) out[h * c_.head_size + d] += p[j] / total * v[j][d];
    }
  }

  double gate(double x) const {
    if (c_.activation == Activation::kSilu) return x / (1 + std::exp(-x));
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  }

  static void add(const Matrix& x, Matrix& y) {
    for (size_t t = 0; t < y.size(); ++t) {
      for (size_t i = 0; i < y[t].size(); ++i) y[t][i] += x[t][i];
    }
  }

  void run_layer(int64_t layer, Matrix& x) const {
    Matrix qkv =
        product(rms_norm(x, vector(layer, "input_norm")), matrix(layer, "query_key_value"));
    if (c_.qkv_bias) {
      const std::vector<double> bias = vector(layer, "query_key_value_bias");
      for (std::vector<double>& row : qkv) {
        for (size_t i = 0; i < row.size(); ++i) row[i] += bias[i];
      }
    }
    Matrix output = product(attention(qkv, layer), matrix(layer, "attention_output"));
    if (c_.attention_output_norm) {
      output = rms_norm(output, vector(layer, "attention_output_norm"));
    }
    add(output, x);
    const Matrix gate_up =
        product(rms_norm(x, vector(layer, "post_attention_norm")), matrix(layer, "gate_up"));
    Matrix activated(x.size(), std::vector<double>(c_.mlp));
    for (size_t t = 0; t < x.size(); ++t) {
      for (int64_t f = 0; f < c_.mlp; ++f)
        activated[t][f] = gate(gate_up[t][f]) * gate_up[t][c_.mlp + f];
    }
    output = product(activated, matrix(layer, "down"));
    if (c_.mlp_output_norm) output = rms_norm(output, vector(layer, "mlp_output_norm"));
    add(output, x);
  }

  const ModelConfig& c_;
  const std::vector<ParameterGroup>& groups_;
  std::span<const double> values_;
  const DenseRow& row_;
  std::vector<int64_t> offsets_;
};

}  // namespace

double dense_loss(const ModelConfig& config, const std::vector<ParameterGroup>& groups,
                  std::span<const double> values, const DenseRow& row) {
  return DenseDecoder(config, groups, values, row).loss();
}

}  // namespace odyssey
