// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/adamw.h"

#include "odyssey/kernels/testing.h"

namespace odyssey {
namespace {

// optax.adamw, in double.
struct Reference {
  double parameter, mu = 0, nu = 0;

  void step(const AdamwOptions& o, int t, double g) {
    mu = o.beta1 * mu + (1 - o.beta1) * g;
    nu = o.beta2 * nu + (1 - o.beta2) * g * g;
    const double mu_hat = mu / (1 - std::pow(o.beta1, t)), nu_hat = nu / (1 - std::pow(o.beta2, t));
    double update = mu_hat / (std::sqrt(nu_hat + o.epsilon_root) + o.epsilon);
    update += o.weight_decay * parameter;
    parameter -= o.learning_rate * update;
  }
};

void expect_equals_reference(const AdamwOptions& options, int64_t size, double gradient_scale) {
  std::vector<float> parameter = testing::random_values<float>(size, 1), mu(parameter.size()),
                     nu(parameter.size());
  std::vector<Reference> expected;
  for (float p : parameter) expected.push_back({p});
  for (int step = 1; step <= 7; ++step) {
    const std::vector<float> gradient = testing::random_values<float>(size, 10 + step, 0.3);
    adamw(options, step, gradient_scale, gradient, parameter, mu, nu);
    for (size_t i = 0; i < parameter.size(); ++i) {
      expected[i].step(options, step, gradient_scale * gradient[i]);
    }
  }
  for (size_t i = 0; i < parameter.size(); ++i) {
    EXPECT_NEAR(parameter[i], expected[i].parameter, 2e-6 * (1 + std::abs(expected[i].parameter)));
    EXPECT_NEAR(mu[i], expected[i].mu, 1e-6 * gradient_scale);
    EXPECT_NEAR(nu[i], expected[i].nu, 1e-6 * gradient_scale * gradient_scale);
  }
}

TEST(Adamw, EqualsTheFormulasOverSeveralSteps) {
  for (int64_t size : {0, 1, 5, 300}) expect_equals_reference({}, size, 1);
  expect_equals_reference({.learning_rate = 0.05, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1},
                          100, 1);
}

TEST(Adamw, ScalesTheGradientAndPlacesBothEpsilons) {
  // Large epsilons, so that a wrong place would show.
  expect_equals_reference({.learning_rate = 0.01, .epsilon = 0.1, .epsilon_root = 0}, 50, 0.25);
  expect_equals_reference({.learning_rate = 0.01, .epsilon = 0, .epsilon_root = 0.1}, 50, 3);
}

TEST(Adamw, WeightDecayAloneShrinksParametersByTheLearningRate) {
  std::vector<float> parameter{2.0f}, mu{0.0f}, nu{0.0f};
  const std::vector<float> gradient{0.0f};
  adamw({.learning_rate = 0.1, .weight_decay = 0.5}, 1, 1, gradient, parameter, mu, nu);
  EXPECT_FLOAT_EQ(parameter[0], 2.0f * (1 - 0.1f * 0.5f));
}

TEST(Adamw, GivesTheSameBitsAtAnyThreadCountAndInAnySlices) {
  constexpr int64_t kSize = 50001;
  const std::vector<float> gradient = testing::random_values<float>(kSize, 2);
  testing::expect_same_at_any_thread_count([&] {
    std::vector<float> parameter = testing::random_values<float>(kSize, 1), mu(kSize), nu(kSize);
    adamw({}, 1, 0.5, gradient, parameter, mu, nu);
    return parameter;
  });
}

TEST(Adamw, GivesTheSquaresOfTheNewParametersTheSameAtAnyThreadCount) {
  for (int64_t size : {0, 1, 100, 600007}) {
    const std::vector<float> gradient = testing::random_values<float>(size, 2);
    std::vector<float> parameter;
    testing::expect_same_at_any_thread_count([&] {
      parameter = testing::random_values<float>(size, 1);
      std::vector<float> mu(parameter.size()), nu(parameter.size());
      return std::vector<double>{adamw({}, 1, 0.5, gradient, parameter, mu, nu)};
    });
    std::vector<float> mu(parameter.size()), nu(parameter.size());
    const double squares = adamw({}, 2, 0.5, gradient, parameter, mu, nu);
    double expected = 0;
    for (float p : parameter) expected += static_cast<double>(p) * p;
    EXPECT_NEAR(squares, expected, 1e-12 * expected);
  }
}

TEST(Adamw, RefusesStepZeroAndUnequalSpans) {
  std::vector<float> two(2), three(3);
  EXPECT_THROW(adamw({}, 0, 1, two, two, two, two), std::logic_error);
  EXPECT_THROW(adamw({}, 1, 1, two, two, two, three), std::logic_error);
}

}  // namespace
}  // namespace odyssey
