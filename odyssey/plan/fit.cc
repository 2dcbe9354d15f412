// SPDX-License-Identifier: Apache-2.0
#include "odyssey/plan/fit.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace odyssey {
namespace {

using Point = std::vector<double>;

// a + factor * (b - a)
Point along(const Point& a, const Point& b, double factor) {
  Point point(a.size());
  for (size_t i = 0; i < a.size(); ++i) point[i] = a[i] + factor * (b[i] - a[i]);
  return point;
}

struct Vertex {
  Point point;
  double value = 0;
};

// One descent from a simplex around `start`.
Point descend(const std::function<double(const Point&)>& function, const Point& start,
              double step) {
  constexpr int kMostSteps = 2000;
  constexpr double kTolerance = 1e-13;  // of values, relative
  const size_t n = start.size();
  std::vector<Vertex> simplex = {{start, function(start)}};
  for (size_t i = 0; i < n; ++i) {
    Point point = start;
    point[i] += step;
    simplex.push_back({point, function(point)});
  }
  const auto by_value = [](const Vertex& a, const Vertex& b) { return a.value < b.value; };
  for (int round = 0; round < kMostSteps; ++round) {
    std::stable_sort(simplex.begin(), simplex.end(), by_value);
    const Vertex &best = simplex.front(), &worst = simplex.back();
    if (worst.value - best.value <= kTolerance * std::fabs(worst.value)) break;
    Point centre(n, 0);
    for (size_t v = 0; v < n; ++v) {
      for (size_t i = 0; i < n; ++i) {
        centre[i] += simplex[v].point[i] / static_cast<double>(n);
      }
    }
    const auto at = [&](double factor) {
      const Point point = along(centre, worst.point, factor);
      return Vertex{point, function(point)};
    };
    const Vertex reflected = at(-1);
    if (reflected.value < best.value) {
      const Vertex expanded = at(-2);
      simplex.back() = expanded.value < reflected.value ? expanded : reflected;
    } else if (reflected.value < simplex[n - 1].value) {
      simplex.back() = reflected;
    } else {
      const Vertex contracted = at(reflected.value < worst.value ? -0.5 : 0.5);
      if (contracted.value < std::min(worst.value, reflected.value)) {
        simplex.back() = contracted;
      } else {
        for (size_t v = 1; v <= n; ++v) {
          simplex[v].point = along(simplex[0].point, simplex[v].point, 0.5);
          simplex[v].value = function(simplex[v].point);
        }
      }
    }
  }
  std::stable_sort(simplex.begin(), simplex.end(), by_value);
  return simplex.front().point;
}

double log_error(const Sample& sample, const Calibration& calibration) {
  return std::log(predict(*sample.cell, sample.measure, calibration) / sample.cell->measured);
}

double sum_of_squares(const std::vector<Sample>& samples, const Calibration& calibration) {
  double sum = 0;
  for (const Sample& sample : samples) {
    const double error = log_error(sample, calibration);
    sum += error * error;
  }
  return sum;
}

// The fitted constants that some cell depends on.
std::vector<CalibrationField> free_fields(const std::vector<Sample>& samples,
                                          const Calibration& start) {
  std::vector<CalibrationField> fields;
  const double before = sum_of_squares(samples, start);
  for (const CalibrationField& field : calibration_fields()) {
    if (!field.is_fitted) continue;
    Calibration moved = start;
    moved.*field.value *= 0.9;
    if (sum_of_squares(samples, moved) != before) fields.push_back(field);
  }
  return fields;
}

// Logarithms of the constants, so that all of them move by parts of their size.
Calibration with_values(const Calibration& start, const std::vector<CalibrationField>& fields,
                        const Point& logarithms) {
  Calibration calibration = start;
  for (size_t i = 0; i < fields.size(); ++i) {
    calibration.*fields[i].value =
        std::clamp(std::exp(logarithms[i]), fields[i].least, fields[i].most);
  }
  return calibration;
}

std::vector<Sample> without(const std::vector<Sample>& samples, size_t index) {
  std::vector<Sample> rest = samples;
  rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(index));
  return rest;
}

}  // namespace

std::vector<double> minimise(const std::function<double(const std::vector<double>&)>& function,
                             std::vector<double> start, double step) {
  // A simplex may fold up before it is there: a fresh one goes on.
  for (int attempt = 0; attempt < 3; ++attempt) start = descend(function, start, step);
  return start;
}

std::vector<Sample> samples_of(std::span<const Table> tables) {
  std::vector<Sample> samples;
  for (const Table& table : tables) {
    for (const Cell& cell : table.cells) samples.push_back({&cell, table.measure});
  }
  return samples;
}

Calibration fit(const std::vector<Sample>& samples, const Calibration& start) {
  const std::vector<CalibrationField> fields = free_fields(samples, start);
  Point logarithms;
  for (const CalibrationField& field : fields) {
    logarithms.push_back(std::log(start.*field.value));
  }
  const auto error = [&](const Point& point) {
    double beyond = 0;  // steers back into the bounds
    for (size_t i = 0; i < fields.size(); ++i) {
      beyond += std::max(0.0, point[i] - std::log(fields[i].most)) +
                std::max(0.0, std::log(fields[i].least) - point[i]);
    }
    return sum_of_squares(samples, with_values(start, fields, point)) + beyond;
  };
  constexpr double kStep = 0.15;
  return with_values(start, fields, minimise(error, logarithms, kStep));
}

std::vector<double> jackknife_errors(const std::vector<Sample>& samples,
                                     const Calibration& fitted) {
  std::vector<double> squares(calibration_fields().size(), 0);
  for (size_t i = 0; i < samples.size(); ++i) {
    const Calibration other = fit(without(samples, i), fitted);
    for (size_t f = 0; f < squares.size(); ++f) {
      const auto value = calibration_fields()[f].value;
      squares[f] += std::pow(other.*value - fitted.*value, 2);
    }
  }
  const double n = static_cast<double>(samples.size());
  for (double& square : squares) square = std::sqrt(square * (n - 1) / n);
  return squares;
}

std::vector<double> held_out_errors(const std::vector<Sample>& samples, const Calibration& start) {
  std::vector<double> errors;
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto one = transfer_errors(without(samples, i), {samples[i]}, start);
    errors.push_back(one[0]);
  }
  return errors;
}

std::vector<double> transfer_errors(const std::vector<Sample>& train,
                                    const std::vector<Sample>& test, const Calibration& start) {
  const Calibration calibration = fit(train, start);
  std::vector<double> errors;
  for (const Sample& sample : test) {
    errors.push_back(std::fabs(std::expm1(log_error(sample, calibration))));
  }
  return errors;
}

}  // namespace odyssey
