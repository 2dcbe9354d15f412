// SPDX-License-Identifier: Apache-2.0
#include "odyssey/plan/rank_clock.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <unordered_map>

#include "odyssey/base/error.h"

namespace odyssey {
namespace {

using Kind = RankAction::Kind;
constexpr double kNever = std::numeric_limits<double>::infinity();
// Work that is left after rounding; far below any action that matters.
constexpr double kRest = 1e-12;

class RankClock {
 public:
  RankClock(const std::vector<std::vector<RankAction>>& actions, const ModelCores& cores)
      : actions_(actions), cores_(cores), at_(actions.size(), 0), left_(actions.size(), 0) {
    times_.end_of_rank.assign(actions.size(), 0);
    busy_.assign((actions.size() + cores.ranks_per_host - 1) / cores.ranks_per_host, 0);
    for (const auto& list : actions) {
      double work = 0;
      for (const RankAction& action : list) work += action.kind == Kind::kWork ? action.seconds : 0;
      times_.busiest = std::max(times_.busiest, work);
      times_.all += work;
    }
    for (size_t rank = 0; rank < actions.size(); ++rank) begin(rank);
  }

  RankTimes run() {
    while (true) {
      // Sends of one rank let others go on at the same moment.
      for (bool moved = true; moved;) {
        moved = false;
        for (size_t rank = 0; rank < actions_.size(); ++rank) moved = pass_instants(rank) || moved;
      }
      const double step = next_event() - now_;
      if (step == kNever) break;
      for (size_t rank = 0; rank < actions_.size(); ++rank) {
        if (works(rank)) left_[rank] -= step * rate(rank);
      }
      now_ += step;
    }
    for (size_t rank = 0; rank < actions_.size(); ++rank) {
      ODYSSEY_CHECK(is_done(rank), "rank {} waits for ever in action {}", rank, at_[rank]);
    }
    times_.seconds = now_;
    return std::move(times_);
  }

 private:
  bool is_done(size_t rank) const { return at_[rank] == actions_[rank].size(); }
  const RankAction& action(size_t rank) const { return actions_[rank][at_[rank]]; }
  bool works(size_t rank) const { return !is_done(rank) && action(rank).kind == Kind::kWork; }
  size_t host(size_t rank) const { return rank / cores_.ranks_per_host; }
  double rate(size_t rank) const {
    return std::min(cores_.most_of_rank, cores_.cores / busy_[host(rank)]);
  }

  // The rank is at a new action.
  void begin(size_t rank) {
    if (is_done(rank)) {
      times_.end_of_rank[rank] = now_;
    } else if (action(rank).kind == Kind::kWork) {
      left_[rank] = action(rank).seconds;
      ++busy_[host(rank)];
    }
  }
  void next(size_t rank) {
    if (works(rank)) --busy_[host(rank)];
    ++at_[rank];
    begin(rank);
  }

  // When each message of this channel arrives, in order.
  std::deque<double>& channel(size_t from, size_t to) {
    return arrivals_[from * actions_.size() + to];
  }

  // Goes on over all that takes no more time; true if there was any.
  bool pass_instants(size_t rank) {
    const size_t before = at_[rank];
    while (!is_done(rank)) {
      const RankAction& now = action(rank);
      if (now.kind == Kind::kWork && left_[rank] > kRest) break;
      if (now.kind == Kind::kSend) channel(rank, now.peer).push_back(now_ + now.seconds);
      if (now.kind == Kind::kReceive) {
        std::deque<double>& arrivals = channel(now.peer, rank);
        if (arrivals.empty() || arrivals.front() > now_ + kRest) break;
        arrivals.pop_front();
      }
      next(rank);
    }
    return at_[rank] != before;
  }

  double next_event() {
    double soonest = kNever;
    for (size_t rank = 0; rank < actions_.size(); ++rank) {
      if (is_done(rank)) continue;
      if (works(rank)) {
        soonest = std::min(soonest, now_ + left_[rank] / rate(rank));
      } else if (const auto& arrivals = channel(action(rank).peer, rank); !arrivals.empty()) {
        soonest = std::min(soonest, arrivals.front());
      }
    }
    return soonest;
  }

  const std::vector<std::vector<RankAction>>& actions_;
  const ModelCores& cores_;
  double now_ = 0;
  std::vector<size_t> at_;    // [ranks] index of the action
  std::vector<double> left_;  // [ranks] seconds of a core, of kWork
  std::vector<double> busy_;  // [hosts] ranks that work
  std::unordered_map<size_t, std::deque<double>> arrivals_;
  RankTimes times_;
};

}  // namespace

RankTimes run_ranks(const std::vector<std::vector<RankAction>>& actions, const ModelCores& cores) {
  return RankClock(actions, cores).run();
}

}  // namespace odyssey
