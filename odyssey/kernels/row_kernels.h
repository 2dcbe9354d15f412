// SPDX-License-Identifier: Apache-2.0
// The kernels that memory bounds, one row at a time: what one instruction set has to supply. Norm,
// RoPE, activation, cross entropy, AdamW and the plain loops share out rows among threads and call
// these. Plain pointers only, because the files behind it are compiled with instruction-set flags
// and may hold no library code.
//
// Rows lie side by side in memory, at any address. Nothing outside a row is read or written. An
// element gets the same bits wherever in a row it stands; the order of sums depends on the length
// and on the instruction set. Arithmetic is in fp32, results are rounded once.
#pragma once
#include <cstdint>

#include "odyssey/base/bf16.h"

namespace odyssey {

// The factors of one step of AdamW (kernels/adamw.h); correct = 1 / (1 - beta^t).
struct AdamwFactors {
  float gradient_scale;
  float beta1, rest1, beta2, rest2;  // rest = 1 - beta
  float correct1, correct2;
  float rate, epsilon, epsilon_root, decay;
};

// most: the largest logit. sum: of e^(logit - most), fp32 inside blocks and double between them.
struct ExponentialSum {
  float most;
  double sum;
};

// Of rows in storage type T. Outputs may be inputs, element for element.
template <class T>
struct StoredRows {
  // y = x r (offset + w) with r = 1 / sqrt(mean(x^2) + epsilon), which it gives back.
  float (*norm)(const T* x, const T* w, float offset, float epsilon, int64_t width, T* y);
  // dx = (or +=) the gradient of that line, dw += its gradient.
  void (*norm_backward)(const T* dy, const T* x, const T* w, float offset, float r, int64_t width,
                        bool accumulate, T* dx, float* dw);
  // (low, high) = (low cos - high sin, high cos + low sin), pair by pair.
  void (*turn)(T* low, T* high, const float* cosines, const float* sines, int64_t pairs);
  // out = silu(gate) up, or gelu(gate) up in its tanh form.
  void (*silu)(const T* gate, const T* up, int64_t width, T* out);
  void (*gelu)(const T* gate, const T* up, int64_t width, T* out);
  // Their gradients; d_gate may be gate, d_up may be up.
  void (*silu_backward)(const T* dout, const T* gate, const T* up, int64_t width, T* d_gate,
                        T* d_up);
  void (*gelu_backward)(const T* dout, const T* gate, const T* up, int64_t width, T* d_gate,
                        T* d_up);
  // out = factor e^(logit - most)
  void (*softmax)(const float* logits, float most, float factor, int64_t size, T* out);
  void (*add)(const T* x, int64_t size, T* y);                           // y += x
  void (*scale)(float factor, const T* x, int64_t size, T* y);           // y = factor x
  void (*add_scaled)(float factor, const T* x, int64_t size, float* y);  // y += factor x
  double (*squares)(const T* x, int64_t size);                           // sum of x^2, in double
  float (*dot)(const T* x, const T* y, int64_t size);                    // sum of x y
};

struct RowKernels {
  StoredRows<float> fp32;
  StoredRows<bf16> half;
  // bf16 rounds to nearest even, NaN stays NaN.
  void (*narrow)(const float* x, int64_t size, bf16* y);
  void (*widen)(const bf16* x, int64_t size, float* y);
  ExponentialSum (*exponential_sum)(const float* logits, int64_t size);
  // Cosine and sine of the fp32 product position * frequency, good to 2e-7 for products up to 2^20.
  void (*angles)(float position, const float* frequencies, int64_t count, float* cosines,
                 float* sines);
  // One step on a piece of a tensor; the sum of the squares of the new parameters, in double.
  double (*adamw)(const AdamwFactors& factors, const float* gradient, int64_t size,
                  float* parameter, float* mu, float* nu);
};

extern const RowKernels kRowKernelsReference;  // plain loops: the oracle
extern const RowKernels kRowKernelsPortable;
#if defined(__x86_64__)
extern const RowKernels kRowKernelsAvx2;
extern const RowKernels kRowKernelsAvx512;
extern const RowKernels kRowKernelsAvx512Bf16;  // also rounds to bf16 in one instruction
#endif

// Those of isa_in_use().
const RowKernels& row_kernels();

template <class T>
const StoredRows<T>& stored_rows(const RowKernels& kernels) {
  if constexpr (sizeof(T) == 2) {
    return kernels.half;
  } else {
    return kernels.fp32;
  }
}

}  // namespace odyssey
