// SPDX-License-Identifier: Apache-2.0
// One step of AdamW on fp32 masters and moments, with the meaning of optax.adamw. Memory
// bounds it: 16 bytes read and 12 written a parameter.
#pragma once
#include <cstdint>
#include <span>

namespace odyssey {

struct AdamwOptions {
  double learning_rate = 1e-3;  // of this step
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;       // outside the square root
  double epsilon_root = 0;     // inside it
  double weight_decay = 1e-4;  // times learning_rate times the parameter; 0 for norms and biases
};

// With g = gradient_scale * gradient and t = step, counted from 1:
//   mu = beta1 mu + (1 - beta1) g;  nu = beta2 nu + (1 - beta2) g^2
//   parameter -= learning_rate * (mu / (1 - beta1^t) / (sqrt(nu / (1 - beta2^t) + epsilon_root) +
//   epsilon)
//                                 + weight_decay * parameter)
// gradient_scale holds 1 / total weights and the clip factor, so that no pass over the gradients is
// spent on them. All spans have one length; element by element, so any slice of a tensor may be
// given. Returns the sum of the squares of the new parameters, in double, in an order that the
// length alone fixes: a pass over the parameters less for whoever reports their norm.
double adamw(const AdamwOptions& options, int64_t step, double gradient_scale,
             std::span<const float> gradient, std::span<float> parameter, std::span<float> mu,
             std::span<float> nu);

}  // namespace odyssey
