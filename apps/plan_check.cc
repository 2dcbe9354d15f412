// SPDX-License-Identifier: Apache-2.0
#include "apps/plan_check.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

namespace odyssey {

Agreement agreement_of(const std::vector<PlanCheck>& rows) {
  constexpr double kTie = 0.05;
  Agreement result;
  for (const PlanCheck& a : rows) {
    const double error = std::fabs(a.error());
    result.mean_error += error / static_cast<double>(rows.size());
    result.largest_error = std::max(result.largest_error, error);
    for (const PlanCheck& b : rows) {
      const bool differ =
          b.seconds.median >= a.seconds.median * (1 + kTie) && b.seconds.least > a.seconds.most;
      if (!differ) continue;
      const bool is_same_run = a.length == b.length && a.parallel.ranks() == b.parallel.ranks();
      const int ordered = a.predicted < b.predicted ? 1 : 0;
      for (PairOrder* order : {&result.all, &result.layouts}) {
        if (order == &result.layouts && !is_same_run) continue;
        ++order->pairs;
        order->ordered += ordered;
      }
    }
  }
  return result;
}

namespace {

std::string order_text(const PairOrder& order) {
  if (order.pairs == 0) return "none differ";
  return fmt::format("{} of {} ({:.0f} %)", order.ordered, order.pairs,
                     100.0 * order.ordered / order.pairs);
}

}  // namespace

std::string plan_check_text(const std::vector<PlanCheck>& rows) {
  constexpr double kPercent = 100;
  std::string text = fmt::format("{:>7} {:>5} {:<10} {:>5} {:<15} {:>10} {:>10} {:>20} {:>8}\n",
                                 "S", "ranks", "strategy", "R x U", "placement", "predicted",
                                 "measured", "(least to most)", "error %");
  for (const PlanCheck& row : rows) {
    fmt::format_to(std::back_inserter(text),
                   "{:>7} {:>5} {:<10} {:>5} {:<15} {:>10.4f} {:>10.4f} {:>20} {:>+8.1f}\n",
                   row.length, row.parallel.ranks(), name_of(row.parallel.strategy),
                   fmt::format("{}x{}", row.parallel.ring_size, row.parallel.ulysses_size),
                   name_of(row.parallel.placement), row.predicted, row.seconds.median,
                   fmt::format("({:.4f} to {:.4f})", row.seconds.least, row.seconds.most),
                   kPercent * row.error());
  }
  const Agreement all = agreement_of(rows);
  fmt::format_to(std::back_inserter(text), "\n{} rows: mean error {:.1f} %, largest {:.1f} %\n",
                 rows.size(), kPercent * all.mean_error, kPercent * all.largest_error);
  return text + fmt::format(
                    "pairs in order, where medians differ by more than 5 % and spreads not at "
                    "all: {}; of layouts at one length and number of ranks: {}\n",
                    order_text(all.all), order_text(all.layouts));
}

void write_plan_checks(const std::vector<PlanCheck>& rows, BenchJson& json) {
  for (const PlanCheck& row : rows) {
    JsonLine line;
    line.add("strategy", name_of(row.parallel.strategy))
        .add("ring", row.parallel.ring_size)
        .add("ulysses", row.parallel.ulysses_size)
        .add("placement", name_of(row.parallel.placement))
        .add("ranks", row.parallel.ranks())
        .add("length", row.length)
        .add("predicted_seconds", row.predicted)
        .add("measured_seconds", row.seconds.median)
        .add("min_seconds", row.seconds.least)
        .add("max_seconds", row.seconds.most);
    json.write(line);
  }
}

}  // namespace odyssey
