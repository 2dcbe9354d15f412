// SPDX-License-Identifier: Apache-2.0
// The row kernels as plain loops, with sums in double: what they mean, the oracle of the others,
// and what runs under ODYSSEY_MAX_ISA=ref.
#include <algorithm>
#include <cmath>
#include <limits>

#include "odyssey/kernels/exponential.h"
#include "odyssey/kernels/row_kernels.h"

namespace odyssey {
namespace {

template <class T>
float norm(const T* x, const T* w, float offset, float epsilon, int64_t width, T* y) {
  double sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += to_float(x[i]) * to_float(x[i]);
  const float mean = static_cast<float>(sum / static_cast<double>(width));
  const float r = 1.0f / std::sqrt(mean + epsilon);
  for (int64_t i = 0; i < width; ++i) y[i] = T(to_float(x[i]) * r * (offset + to_float(w[i])));
  return r;
}

// y[i] = x[i] r (o + w[i]) gives dw[i] = dy[i] x[i] r and, with g[i] = dy[i] (o + w[i]),
// dx[i] = r g[i] - x[i] r^3 / E * sum over j of g[j] x[j].
template <class T>
void norm_backward(const T* dy, const T* x, const T* w, float offset, float r, int64_t width,
                   bool accumulate, T* dx, float* dw) {
  double dot = 0;
  for (int64_t i = 0; i < width; ++i) {
    dot += to_float(dy[i]) * (offset + to_float(w[i])) * to_float(x[i]);
  }
  const float shrink = static_cast<float>(dot / static_cast<double>(width)) * r * r;
  for (int64_t i = 0; i < width; ++i) {
    const float d = to_float(dy[i]), value = to_float(x[i]);
    dw[i] += d * value * r;
    const float gradient = r * (d * (offset + to_float(w[i])) - value * shrink);
    dx[i] = T((accumulate ? to_float(dx[i]) : 0.0f) + gradient);
  }
}

template <class T>
void turn(T* low, T* high, const float* cosines, const float* sines, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = to_float(low[i]), b = to_float(high[i]);
    low[i] = T(a * cosines[i] - b * sines[i]);
    high[i] = T(b * cosines[i] + a * sines[i]);
  }
}

struct ValueAndSlope {
  float value, slope;
};

ValueAndSlope silu(float x) {
  const float s = vector_sigmoid(x);
  return {x * s, s * (1.0f + x * (1.0f - s))};
}

// x (1 + tanh(u)) / 2 = x sigmoid(2u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
ValueAndSlope gelu(float x) {
  constexpr float kTwoRoots = 1.59576912f;  // 2 sqrt(2 / pi)
  constexpr float kCubic = 0.044715f;
  // Beyond 10 the sigmoid is 0 or 1 to all digits; the cube of a huge x would overflow.
  const float z = std::clamp(x, -10.0f, 10.0f);
  const float s = vector_sigmoid(kTwoRoots * (z + kCubic * z * z * z));
  const float slope_of_2u = kTwoRoots * (1.0f + 3.0f * kCubic * z * z);
  return {x * s, s + x * s * (1.0f - s) * slope_of_2u};
}

template <ValueAndSlope (*kFunction)(float), class T>
void gated(const T* gate, const T* up, int64_t width, T* out) {
  for (int64_t i = 0; i < width; ++i) {
    out[i] = T(kFunction(to_float(gate[i])).value * to_float(up[i]));
  }
}

template <ValueAndSlope (*kFunction)(float), class T>
void gated_backward(const T* dout, const T* gate, const T* up, int64_t width, T* d_gate, T* d_up) {
  for (int64_t i = 0; i < width; ++i) {
    const ValueAndSlope f = kFunction(to_float(gate[i]));
    const float d = to_float(dout[i]), u = to_float(up[i]);
    d_gate[i] = T(d * u * f.slope);
    d_up[i] = T(d * f.value);
  }
}

template <class T>
void softmax(const float* logits, float most, float factor, int64_t size, T* out) {
  for (int64_t i = 0; i < size; ++i) out[i] = T(factor * vector_exp(logits[i] - most));
}

template <class T>
void add(const T* x, int64_t size, T* y) {
  for (int64_t i = 0; i < size; ++i) y[i] = T(to_float(y[i]) + to_float(x[i]));
}

template <class T>
void scale(float factor, const T* x, int64_t size, T* y) {
  for (int64_t i = 0; i < size; ++i) y[i] = T(to_float(x[i]) * factor);
}

template <class T>
void add_scaled(float factor, const T* x, int64_t size, float* y) {
  for (int64_t i = 0; i < size; ++i) y[i] += to_float(x[i]) * factor;
}

template <class T>
double squares(const T* x, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) {
    const double value = to_float(x[i]);
    sum += value * value;
  }
  return sum;
}

template <class T>
float dot(const T* x, const T* y, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += double{to_float(x[i])} * double{to_float(y[i])};
  return static_cast<float>(sum);
}

void narrow(const float* x, int64_t size, bf16* y) {
  for (int64_t i = 0; i < size; ++i) y[i] = bf16(x[i]);
}

void widen(const bf16* x, int64_t size, float* y) {
  for (int64_t i = 0; i < size; ++i) y[i] = to_float(x[i]);
}

ExponentialSum exponential_sum(const float* logits, int64_t size) {
  float most = std::numeric_limits<float>::lowest();
  for (int64_t i = 0; i < size; ++i) most = logits[i] > most ? logits[i] : most;
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += static_cast<double>(vector_exp(logits[i] - most));
  return {most, sum};
}

void angles(float position, const float* frequencies, int64_t count, float* cosines, float* sines) {
  for (int64_t i = 0; i < count; ++i) {
    const float angle = position * frequencies[i];
    cosines[i] = std::cos(angle);
    sines[i] = std::sin(angle);
  }
}

double adamw(const AdamwFactors& f, const float* gradient, int64_t size, float* parameter,
             float* mu, float* nu) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) {
    const float g = f.gradient_scale * gradient[i];
    mu[i] = f.beta1 * mu[i] + f.rest1 * g;
    nu[i] = f.beta2 * nu[i] + f.rest2 * g * g;
    const float root = std::sqrt(nu[i] * f.correct2 + f.epsilon_root);
    const float update = mu[i] * f.correct1 / (root + f.epsilon);
    parameter[i] -= f.rate * (update + f.decay * parameter[i]);
    sum += static_cast<double>(parameter[i]) * parameter[i];
  }
  return sum;
}

template <class T>
constexpr StoredRows<T> kStoredRows = {norm<T>,
                                       norm_backward<T>,
                                       turn<T>,
                                       gated<silu, T>,
                                       gated<gelu, T>,
                                       gated_backward<silu, T>,
                                       gated_backward<gelu, T>,
                                       softmax<T>,
                                       add<T>,
                                       scale<T>,
                                       add_scaled<T>,
                                       squares<T>,
                                       dot<T>};

}  // namespace

const RowKernels kRowKernelsReference = {
    kStoredRows<float>, kStoredRows<bf16>, narrow, widen, exponential_sum, angles, adamw};

}  // namespace odyssey
