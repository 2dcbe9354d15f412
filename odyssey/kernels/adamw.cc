// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/adamw.h"

#include <cmath>

#include "odyssey/base/error.h"
#include "odyssey/base/parallel_for.h"

namespace odyssey {

void adamw(const AdamwOptions& options, int64_t step, double gradient_scale,
           std::span<const float> gradient, std::span<float> parameter, std::span<float> mu,
           std::span<float> nu) {
  ODYSSEY_CHECK(step >= 1, "step {}", step);
  ODYSSEY_CHECK(gradient.size() == parameter.size() && mu.size() == parameter.size() &&
                    nu.size() == parameter.size(),
                "{} gradients, {} parameters, {} and {} moments", gradient.size(), parameter.size(),
                mu.size(), nu.size());
  // All that does not depend on the element is computed once, in double.
  const double t = static_cast<double>(step);
  const float factor = static_cast<float>(gradient_scale);
  const float beta1 = static_cast<float>(options.beta1),
              rest1 = static_cast<float>(1 - options.beta1);
  const float beta2 = static_cast<float>(options.beta2),
              rest2 = static_cast<float>(1 - options.beta2);
  const float correct1 = static_cast<float>(1 / (1 - std::pow(options.beta1, t)));
  const float correct2 = static_cast<float>(1 / (1 - std::pow(options.beta2, t)));
  const float rate = static_cast<float>(options.learning_rate);
  const float epsilon = static_cast<float>(options.epsilon);
  const float epsilon_root = static_cast<float>(options.epsilon_root);
  const float decay = static_cast<float>(options.weight_decay);
  const float* gradients = gradient.data();
  float* parameters = parameter.data();
  float* first = mu.data();
  float* second = nu.data();
  parallel_ranges(static_cast<int64_t>(parameter.size()), 8192, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const float g = factor * gradients[i];
      const float m = beta1 * first[i] + rest1 * g;
      const float v = beta2 * second[i] + rest2 * g * g;
      first[i] = m;
      second[i] = v;
      const float update = m * correct1 / (std::sqrt(v * correct2 + epsilon_root) + epsilon);
      parameters[i] -= rate * (update + decay * parameters[i]);
    }
  });
}

}  // namespace odyssey
