// SPDX-License-Identifier: Apache-2.0
#include "odyssey/schedule/step.h"

namespace odyssey {
namespace {

// Builds the list of one rank. A ring rank works on block (r - t) mod R at hop t: its own first,
// then that of the rank before it, and so on.
class Builder {
 public:
  Builder(const AttentionLayout& layout, int r, int u)
      : layout_(layout), r_(r), u_(u), ring_(layout.ring_size()) {}

  std::vector<Step> forward() {
    exchange(StepKind::kExchangeIn, /*with_kv=*/true);
    if (layout_.outer_gather) {
      gather();
      for (int t = 0; t < ring_; ++t) attend(block_at(t));
    } else {
      for (int t = 0; t < ring_; ++t) {
        start_shift(t);
        attend(block_at(t));
        await_shift(t);
      }
    }
    exchange(StepKind::kExchangeOut, /*with_kv=*/false);
    return std::move(steps_);
  }

  std::vector<Step> backward() {
    // q, k and v are still there from the forward call; only dout has to come.
    exchange(StepKind::kExchangeIn, /*with_kv=*/false);
    if (layout_.outer_gather) {
      for (int t = 0; t < ring_; ++t) attend(block_at(t));
      reduce_gradients();
    } else {
      for (int t = 0; t < ring_; ++t) {
        start_shift(t);
        attend(block_at(t));
        await_shift(t);
        shift_gradients(t);
      }
      if (ring_ > 1) add({StepKind::kAwaitGradient, -1, -1, -1, r_, 0, 0, 0});
    }
    exchange_gradients();
    return std::move(steps_);
  }

 private:
  int block_at(int hop) const { return ((r_ - hop) % ring_ + ring_) % ring_; }
  int next() const { return (r_ + 1) % ring_; }
  int previous() const { return (r_ + ring_ - 1) % ring_; }
  void add(const Step& step) { steps_.push_back(step); }

  // K and V, or dK and dV, of one block.
  int64_t block_bytes(int block, int64_t element_bytes) const {
    return 2 * layout_.block_elements(block, u_) * element_bytes;
  }

  void attend(int block) {
    const int64_t pairs = visible_pairs(layout_, r_, block);
    if (pairs > 0) add({StepKind::kAttend, -1, -1, block, -1, 0, 0, pairs});
  }

  void start_shift(int hop) {
    if (hop + 1 == ring_) return;
    const int arriving = block_at(hop + 1);
    add({StepKind::kShift, next(), previous(), block_at(hop), arriving,
         block_bytes(block_at(hop), layout_.element_bytes),
         block_bytes(arriving, layout_.element_bytes), 0});
  }
  void await_shift(int hop) {
    if (hop + 1 == ring_) return;
    add({StepKind::kAwaitShift, -1, -1, block_at(hop), block_at(hop + 1), 0, 0, 0});
  }

  // dK and dV of a block follow the block one hop behind, so they travel while the next block is
  // worked on; after R hops they are home.
  void shift_gradients(int hop) {
    if (ring_ == 1) return;
    if (hop > 0) add({StepKind::kAwaitGradient, -1, -1, -1, block_at(hop), 0, 0, 0});
    const int arriving = block_at(hop + 1);
    add({StepKind::kShiftGradient, next(), previous(), block_at(hop), arriving,
         block_bytes(block_at(hop), 4), block_bytes(arriving, 4), 0});
  }

  void gather() {
    if (ring_ == 1) return;
    // Round the ring in R - 1 hops: every block but the next rank's passes on, every block but the
    // own arrives.
    Step step{StepKind::kGather};
    for (int block = 0; block < ring_; ++block) {
      const int64_t bytes = block_bytes(block, layout_.element_bytes);
      if (block != next()) step.bytes_sent += bytes;
      if (block != r_) step.bytes_received += bytes;
    }
    add(step);
  }

  void reduce_gradients() {
    if (ring_ == 1) return;
    // Every rank sends each other rank that rank's block, and receives its own block from each.
    Step step{StepKind::kReduceGradients};
    for (int block = 0; block < ring_; ++block) {
      if (block != r_) step.bytes_sent += block_bytes(block, 4);
    }
    step.bytes_received = (ring_ - 1) * block_bytes(r_, 4);
    add(step);
  }

  // A query head goes to its owner, a key/value head to everyone that needs it.
  void exchange(StepKind kind, bool with_kv) {
    const int ulysses = layout_.ulysses_size();
    if (ulysses == 1) return;
    const HeadMap& heads = layout_.heads;
    Step step{kind};
    for (int other = 0; other < ulysses; ++other) {
      if (other == u_) continue;
      const int64_t here = rows(u_), there = rows(other);
      const int64_t kv_there = with_kv ? 2 * heads.kv_count(other) : 0;
      const int64_t kv_here = with_kv ? 2 * heads.kv_count(u_) : 0;
      // In: my rows of their heads go, their rows of my heads come. Out: the other way round.
      const int64_t mine_of_theirs = here * (heads.query_count(other) + kv_there);
      const int64_t theirs_of_mine = there * (heads.query_count(u_) + kv_here);
      const bool in = kind == StepKind::kExchangeIn;
      step.bytes_sent +=
          (in ? mine_of_theirs : theirs_of_mine) * token_bytes(layout_.element_bytes);
      step.bytes_received +=
          (in ? theirs_of_mine : mine_of_theirs) * token_bytes(layout_.element_bytes);
    }
    add(step);
  }

  // dQ goes home in the element type, dK and dV in fp32: copies of a KV head are summed there.
  void exchange_gradients() {
    const int ulysses = layout_.ulysses_size();
    if (ulysses == 1) return;
    const HeadMap& heads = layout_.heads;
    Step step{StepKind::kExchangeOut};
    for (int other = 0; other < ulysses; ++other) {
      if (other == u_) continue;
      const int64_t e = layout_.element_bytes;
      step.bytes_sent += rows(other) * (heads.query_count(u_) * token_bytes(e) +
                                        2 * heads.kv_count(u_) * token_bytes(4));
      step.bytes_received += rows(u_) * (heads.query_count(other) * token_bytes(e) +
                                         2 * heads.kv_count(other) * token_bytes(4));
    }
    add(step);
  }

  int64_t rows(int u) const { return layout_.batch * layout_.placement.local_count(r_, u); }
  int64_t token_bytes(int64_t element_bytes) const { return layout_.head_size * element_bytes; }

  const AttentionLayout& layout_;
  int r_, u_, ring_;
  std::vector<Step> steps_;
};

}  // namespace

int64_t visible_pairs(const AttentionLayout& layout, int r, int block) {
  int64_t pairs = 0;
  const auto add = [&](const Placement& row) {
    const std::vector<Run> queries = row.ring_block(r), keys = row.ring_block(block);
    pairs += count_visible_pairs({{queries, {}}, {keys, {}}, layout.kind, layout.window});
  };
  if (layout.rows.empty()) add(layout.placement);
  for (const Placement& row : layout.rows) add(row);
  return pairs;
}

std::string name_of(StepKind kind) {
  switch (kind) {
    case StepKind::kExchangeIn:
      return "exchange in";
    case StepKind::kGather:
      return "gather";
    case StepKind::kShift:
      return "shift";
    case StepKind::kAwaitShift:
      return "await shift";
    case StepKind::kAttend:
      return "attend";
    case StepKind::kShiftGradient:
      return "shift gradient";
    case StepKind::kAwaitGradient:
      return "await gradient";
    case StepKind::kReduceGradients:
      return "reduce gradients";
    case StepKind::kExchangeOut:
      return "exchange out";
  }
  return "?";
}

std::vector<Step> forward_schedule(const AttentionLayout& layout, int r, int u) {
  return Builder(layout, r, u).forward();
}

std::vector<Step> backward_schedule(const AttentionLayout& layout, int r, int u) {
  return Builder(layout, r, u).backward();
}

int64_t bytes_sent(const std::vector<Step>& steps) {
  int64_t bytes = 0;
  for (const Step& step : steps) bytes += step.bytes_sent;
  return bytes;
}

}  // namespace odyssey
