// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/adamw.h"

#include <array>
#include <cmath>

#include "odyssey/base/error.h"
#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/fixed_order.h"
#include "odyssey/kernels/row_kernels.h"

namespace odyssey {

double adamw(const AdamwOptions& options, int64_t step, double gradient_scale,
             std::span<const float> gradient, std::span<float> parameter, std::span<float> mu,
             std::span<float> nu) {
  ODYSSEY_CHECK(step >= 1, "step {}", step);
  ODYSSEY_CHECK(gradient.size() == parameter.size() && mu.size() == parameter.size() &&
                    nu.size() == parameter.size(),
                "{} gradients, {} parameters, {} and {} moments", gradient.size(), parameter.size(),
                mu.size(), nu.size());
  // All that does not depend on the element is computed once, in double.
  const double t = static_cast<double>(step);
  AdamwFactors factors;
  factors.gradient_scale = static_cast<float>(gradient_scale);
  factors.beta1 = static_cast<float>(options.beta1);
  factors.rest1 = static_cast<float>(1 - options.beta1);
  factors.beta2 = static_cast<float>(options.beta2);
  factors.rest2 = static_cast<float>(1 - options.beta2);
  factors.correct1 = static_cast<float>(1 / (1 - std::pow(options.beta1, t)));
  factors.correct2 = static_cast<float>(1 / (1 - std::pow(options.beta2, t)));
  factors.rate = static_cast<float>(options.learning_rate);
  factors.epsilon = static_cast<float>(options.epsilon);
  factors.epsilon_root = static_cast<float>(options.epsilon_root);
  factors.decay = static_cast<float>(options.weight_decay);

  const auto piece_step = row_kernels().adamw;
  const FixedPieces pieces(static_cast<int64_t>(parameter.size()), 8192);
  std::array<double, FixedPieces::kMost> sums{};
  parallel_for(pieces.count(), [&](int64_t p) {
    const int64_t begin = pieces.begin(p);
    sums[static_cast<size_t>(p)] =
        piece_step(factors, gradient.data() + begin, pieces.end(p) - begin,
                   parameter.data() + begin, mu.data() + begin, nu.data() + begin);
  });
  double total = 0;
  for (double sum : sums) total += sum;
  return total;
}

}  // namespace odyssey
