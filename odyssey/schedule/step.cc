// SPDX-License-Identifier: Apache-2.0
#include "odyssey/schedule/step.h"

namespace odyssey {
namespace {

// The rows of a ring block: once, or for each batch row where these differ.
using BlockSegments = std::vector<std::vector<SegmentRun>>;

BlockSegments block_segments(const AttentionLayout& layout, int r) {
  BlockSegments segments;
  if (layout.documents.empty()) {
    for (const std::vector<Run>& runs : block_runs(layout, r)) {
      segments.push_back(segment_runs(runs));
    }
    return segments;
  }
  const std::vector<std::vector<Run>> runs = block_runs(layout, r);
  for (size_t row = 0; row < layout.documents.size(); ++row) {
    segments.push_back(segment_runs(runs[runs.size() == 1 ? 0 : row], layout.documents[row]));
  }
  return segments;
}

int64_t visible_pairs(const AttentionLayout& layout, const BlockSegments& queries,
                      const BlockSegments& keys) {
  int64_t pairs = 0;
  for (size_t row = 0; row < queries.size(); ++row) {
    pairs += count_visible_pairs(queries[row], keys[row], layout.kind, layout.window);
  }
  return pairs;
}

std::vector<RowRange> needed_rows(const AttentionLayout& layout, const BlockSegments& queries,
                                  const BlockSegments& keys) {
  std::vector<RowRange> needed;
  for (size_t row = 0; row < queries.size(); ++row) {
    needed = united(needed, needed_rows(queries[row], keys[row], layout.kind, layout.window));
  }
  return needed;
}

// What one rank and its two partners of a hop need from each other.
struct Hop {
  int to = 0, from = 0;                            // ring ranks t places after and before this one
  std::vector<RowRange> sent = {}, received = {};  // rows of the own block, rows of block `from`
};

using HopGroup = std::vector<Hop>;

class Builder {
 public:
  Builder(const AttentionLayout& layout, int r, int u)
      : layout_(layout), r_(r), u_(u), own_(block_segments(layout, r)) {
    // A rank without heads has nothing to exchange but what the head exchange brings.
    if (layout.row_elements(u) == 0) return;
    const int ring = layout.ring_size();
    // By distance, not by what this rank needs: so a group waits only for earlier groups of other
    // ranks, and nobody for ever.
    int last_group = -1;
    for (int t = 1; t < ring; ++t) {
      Hop hop{(r + t) % ring, (r + ring - t) % ring, {}, {}};
      hop.sent = needed_rows(layout, block_segments(layout, hop.to), own_);
      hop.received = needed_rows(layout, own_, block_segments(layout, hop.from));
      if (hop.sent.empty() && hop.received.empty()) continue;
      const int group = (t - 1) / layout.hops_at_once;
      if (group != last_group) groups_.emplace_back();
      last_group = group;
      groups_.back().push_back(std::move(hop));
    }
  }

  std::vector<Step> forward() {
    exchange(StepKind::kExchangeIn, /*with_kv=*/true);
    if (layout_.outer_gather) {
      for (const HopGroup& group : groups_) {
        for (const Hop& hop : group) add(transfer(StepKind::kGather, hop));
      }
      attend_own();
      for (const HopGroup& group : groups_) attend(group);
    } else {
      start_shifts(0);
      attend_own();
      await_shifts(0);
      for (size_t i = 0; i < groups_.size(); ++i) {
        start_shifts(i + 1);
        attend(groups_[i]);
        await_shifts(i + 1);
      }
    }
    exchange(StepKind::kExchangeOut, /*with_kv=*/false);
    return std::move(steps_);
  }

  // q, k and v are still there from the forward call; only dout has to come. After a gather the
  // rows of the other blocks are there too.
  std::vector<Step> backward() {
    exchange(StepKind::kExchangeIn, /*with_kv=*/false);
    start_shifts(0);
    attend_own();
    await_shifts(0);
    for (size_t i = 0; i < groups_.size(); ++i) {
      start_shifts(i + 1);
      attend(groups_[i]);
      // Before the wait for the next group: so a group waits only for earlier ones of other ranks.
      if (i > 0) await_gradients(groups_[i - 1]);
      for (const Hop& hop : groups_[i]) add(gradient_transfer(hop));
      await_shifts(i + 1);
    }
    if (!groups_.empty()) await_gradients(groups_.back());
    exchange_gradients();
    return std::move(steps_);
  }

 private:
  void add(Step step) { steps_.push_back(std::move(step)); }
  int64_t bytes_of(const std::vector<RowRange>& rows, int64_t element_bytes) const {
    return count_rows(rows) * layout_.row_elements(u_) * element_bytes;
  }

  void attend_own() {
    const int64_t rows = layout_.placement.ring_block_rows(r_);
    if (layout_.row_elements(u_) > 0 && rows > 0) attend(r_, {{0, rows}});
  }
  void attend(const HopGroup& group) {
    for (const Hop& hop : group) {
      if (!hop.received.empty()) attend(hop.from, hop.received);
    }
  }
  void attend(int block, const std::vector<RowRange>& rows) {
    Step step{StepKind::kAttend};
    step.block = block;
    step.rows = rows;
    step.pairs = visible_pairs(layout_, own_, block_segments(layout_, block));
    add(std::move(step));
  }

  // K and V: own rows to the rank that sees them, the rows that this rank sees from their owner.
  Step transfer(StepKind kind, const Hop& hop) const {
    Step step{kind};
    if (!hop.sent.empty()) {
      step.to = hop.to;
      step.block = r_;
      step.rows = hop.sent;
      step.bytes_sent = bytes_of(hop.sent, layout_.element_bytes);
    }
    if (!hop.received.empty()) {
      step.from = hop.from;
      step.arriving = hop.from;
      step.arriving_rows = hop.received;
      step.bytes_received = bytes_of(hop.received, layout_.element_bytes);
    }
    return step;
  }

  // dK and dV: the way back, in fp32 since they are sums.
  Step gradient_transfer(const Hop& hop) const {
    Step step{StepKind::kShiftGradient};
    if (!hop.received.empty()) {
      step.to = hop.from;
      step.block = hop.from;
      step.rows = hop.received;
      step.bytes_sent = bytes_of(hop.received, 4);
    }
    if (!hop.sent.empty()) {
      step.from = hop.to;
      step.arriving = r_;
      step.arriving_rows = hop.sent;
      step.bytes_received = bytes_of(hop.sent, 4);
    }
    return step;
  }

  static Step waiting(StepKind kind, Step step) {
    step.kind = kind;
    step.bytes_sent = step.bytes_received = 0;
    return step;
  }

  void start_shifts(size_t group) {
    if (layout_.outer_gather || group >= groups_.size()) return;
    for (const Hop& hop : groups_[group]) add(transfer(StepKind::kShift, hop));
  }
  void await_shifts(size_t group) {
    if (layout_.outer_gather || group >= groups_.size()) return;
    for (const Hop& hop : groups_[group]) {
      add(waiting(StepKind::kAwaitShift, transfer(StepKind::kShift, hop)));
    }
  }
  void await_gradients(const HopGroup& group) {
    for (const Hop& hop : group) add(waiting(StepKind::kAwaitGradient, gradient_transfer(hop)));
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
  int r_, u_;
  BlockSegments own_;
  std::vector<HopGroup> groups_;  // in order of distance, hops without rows left out
  std::vector<Step> steps_;
};

}  // namespace

AttentionLayout with_mask(AttentionLayout layout, const MaskRule& mask) {
  layout.kind = mask.kind;
  layout.window = mask.window;
  return layout;
}

std::vector<std::vector<Run>> block_runs(const AttentionLayout& layout, int r) {
  if (layout.rows.empty()) return {layout.placement.ring_block(r)};
  std::vector<std::vector<Run>> runs;
  for (const Placement& row : layout.rows) runs.push_back(row.ring_block(r));
  return runs;
}

AttentionLayout of_batch(AttentionLayout layout, std::span<const int32_t> segments) {
  const int64_t length = layout.placement.sequence_length();
  ODYSSEY_CHECK(segments.empty() || static_cast<int64_t>(segments.size()) == layout.batch * length,
                "{} segment ids for {} rows of {}", segments.size(), layout.batch, length);
  if (!layout.follows_documents()) return layout;
  layout.rows.clear();
  layout.documents.clear();
  if (segments.empty()) return layout;
  if (layout.placement.kind() == PlacementKind::kPerDocument) {
    layout.rows = row_placements(layout.placement, layout.batch, segments);
  }
  for (int64_t row = 0; row < layout.batch; ++row) {
    layout.documents.push_back(documents_of(segments.subspan(row * length, length)));
  }
  return layout;
}

int64_t visible_pairs(const AttentionLayout& layout, int r, int block) {
  return visible_pairs(layout, block_segments(layout, r), block_segments(layout, block));
}

std::vector<RowRange> needed_rows(const AttentionLayout& layout, int r, int block) {
  return needed_rows(layout, block_segments(layout, r), block_segments(layout, block));
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

SentBytes sent_bytes(const AttentionLayout& layout, int r, int u) {
  AttentionLayout everything = layout;
  everything.kind = MaskKind::kFull;
  everything.documents.clear();
  const auto sent = [&](const AttentionLayout& any) {
    return bytes_sent(forward_schedule(any, r, u)) + bytes_sent(backward_schedule(any, r, u));
  };
  return {sent(layout), sent(everything)};
}

}  // namespace odyssey
