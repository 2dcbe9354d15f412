// SPDX-License-Identifier: Apache-2.0
#include "odyssey/schedule/checker.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include <fmt/core.h>

#include "odyssey/schedule/block_buffers.h"
#include "odyssey/sequence/shard.h"

namespace odyssey {
namespace {

using Rows = std::vector<RowRange>;

// A transfer that a rank has started: its places in the order of the two wires.
struct Pending {
  Step step;
  size_t sent = 0, received = 0;
};

// What one rank holds while the lists are played.
struct Player {
  int r = 0, u = 0;
  size_t next = 0;                                     // step to do
  BlockBuffers room;                                   // what the executor takes
  std::map<int, Rows> parts;                           // K, V rows that are here, by block
  std::map<int, Rows> attended;                        // by block
  std::map<int, Rows> partial;                         // dK, dV that must still go home, by block
  std::map<int, Rows> home;                            // dK, dV that came home, by ring rank
  std::deque<Pending> shifts, gradients;               // under way
  std::array<int64_t, 2> travelling{};                 // rows in each buffer, 0: free
  std::array<int64_t, 2> partial_rows{};               // likewise
  std::map<int, size_t> buffer_of, partial_buffer_of;  // by block
  // Of the group under way: what it has put into its buffers so far. Then the buffers in turn.
  int64_t packed = 0, arriving = 0, arriving_gradient = 0, attending = 0;
  size_t turn = 0, partial_turn = 0;
  int64_t gathered = 0;
};

class Game {
 public:
  Game(const AttentionLayout& layout, Direction direction,
       const std::vector<std::vector<std::vector<Step>>>& steps)
      : layout_(layout), backward_(direction == Direction::kBackward), steps_(steps) {
    for (int r = 0; r < layout.ring_size(); ++r) {
      runs_.push_back(block_runs(layout, r));
      ids_.push_back(ids_of(r));
    }
    for (int r = 0; r < layout.ring_size(); ++r) {
      for (int u = 0; u < layout.ulysses_size(); ++u) players_.push_back(make_player(r, u));
    }
  }

  std::string play() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Player& player : players_) {
        while (player.next < list(player).size() && advance(player)) moved = true;
        if (!fault_.empty()) return fault_;
      }
      for (int r = 0; r < layout_.ring_size(); ++r) moved |= exchange_heads(r);
      if (!fault_.empty()) return fault_;
    }
    return final_fault();
  }

 private:
  using Wire = std::tuple<int, int, int, StepKind>;  // u, from, to, kind
  struct Message {
    int block;
    Rows rows;
    int64_t bytes;
  };

  const std::vector<Step>& list(const Player& player) const { return steps_[player.r][player.u]; }

  Player make_player(int r, int u) const {
    Player player;
    player.r = r;
    player.u = u;
    const std::vector<Step> forward = forward_schedule(layout_, r, u);
    player.room = block_buffers(layout_, r, u);
    player.parts[r] = {{0, player.room.own}};
    // After a gathering forward call its rows are still there.
    if (backward_) {
      for (const Step& step : forward) {
        if (step.kind == StepKind::kGather) player.parts[step.arriving] = step.arriving_rows;
      }
    }
    return player;
  }

  // False, so that it can be returned: a rank with a fault does not go on.
  bool fail(const Player& player, const std::string& what) {
    if (!fault_.empty()) return false;
    fault_ = fmt::format("ring rank {}, Ulysses rank {}, step {} ({}): {}", player.r, player.u,
                         player.next, name_of(list(player)[player.next].kind), what);
    return false;
  }

  // Does the next step of a rank, unless it has to wait; false when it waits or is wrong.
  bool advance(Player& player) {
    const Step& step = list(player)[player.next];
    bool done = true;
    switch (step.kind) {
      case StepKind::kGather:
        if (player.shifts.empty()) done = start_shift(player, step);
        done = done && await(player, player.shifts, step);
        break;
      case StepKind::kShift:
        done = start_shift(player, step);
        break;
      case StepKind::kAwaitShift:
        done = await(player, player.shifts, step);
        break;
      case StepKind::kAttend:
        done = attend(player, step);
        break;
      case StepKind::kShiftGradient:
        done = start_gradient(player, step);
        break;
      case StepKind::kAwaitGradient:
        done = await(player, player.gradients, step);
        break;
      case StepKind::kExchangeIn:
      case StepKind::kExchangeOut:
        return false;  // waits for its whole group
    }
    if (done) ++player.next;
    if (done && step.kind != StepKind::kAttend) player.attending = 0;
    return done;
  }

  int64_t bytes_of(const Player& player, const Rows& rows, int64_t element_bytes) const {
    return count_rows(rows) * layout_.row_elements(player.u) * element_bytes;
  }

  // Puts both halves of a transfer on their wires.
  bool start(Player& player, const Step& step, int64_t element_bytes,
             std::deque<Pending>& under_way) {
    if (static_cast<int>(under_way.size()) >= layout_.hops_at_once)
      return fail(player, "starts a transfer while a whole group is under way");
    if (step.bytes_sent != bytes_of(player, step.rows, element_bytes) ||
        step.bytes_received != bytes_of(player, step.arriving_rows, element_bytes)) {
      return fail(player, "its bytes are not those of its rows");
    }
    if ((step.to >= 0) != (step.bytes_sent > 0) || (step.from >= 0) != (step.bytes_received > 0) ||
        step.to == player.r || step.from == player.r || step.to >= layout_.ring_size() ||
        step.from >= layout_.ring_size()) {
      return fail(player, "names no rank for its bytes, or a wrong one");
    }
    Pending& pending = under_way.emplace_back(Pending{step});
    if (step.to >= 0) {
      auto& sent = sent_[{player.u, player.r, step.to, step.kind}];
      pending.sent = sent.size();
      sent.push_back({step.block, step.rows, step.bytes_sent});
    }
    if (step.from >= 0) {
      auto& posted = posted_[{player.u, step.from, player.r, step.kind}];
      pending.received = posted.size();
      posted.push_back({step.arriving, step.arriving_rows, step.bytes_received});
    }
    return true;
  }

  bool start_shift(Player& player, const Step& step) {
    if (step.to >= 0 && step.block != player.r)
      return fail(player, "sends rows of a block that it does not own");
    if (player.shifts.empty()) player.packed = player.arriving = 0;
    if (!start(player, step, layout_.element_bytes, player.shifts)) return false;
    if (!is_one_piece(step.rows)) player.packed += count_rows(step.rows);
    if (player.packed > player.room.packed)
      return fail(player, "the rows that leave do not fit in their buffer");
    if (step.from < 0) return true;
    const int64_t rows = count_rows(step.arriving_rows);
    if (step.kind == StepKind::kGather) {
      player.gathered += rows;
      if (player.gathered > player.room.gathered)
        return fail(player, "the gathered rows do not fit in their buffer");
      return true;
    }
    if (!put(player.travelling, player.turn, player.arriving == 0, rows, player.room.travelling))
      return fail(player, "the rows that arrive do not fit in their buffer");
    player.arriving += rows;
    player.buffer_of[step.arriving] = player.turn;
    return true;
  }

  // Rows of a group into a buffer of a pair; the first ones take the other buffer, which must be
  // free. False where they do not fit.
  static bool put(std::array<int64_t, 2>& used, size_t& turn, bool is_first, int64_t rows,
                  const std::array<int64_t, 2>& room) {
    if (is_first) {
      turn = 1 - turn;
      if (used[turn] != 0) return false;
    }
    used[turn] += rows;
    return used[turn] <= room[turn];
  }

  bool start_gradient(Player& player, const Step& step) {
    if (step.to >= 0) {
      const auto found = player.partial.find(step.block);
      if (found == player.partial.end() || found->second != step.rows || step.to != step.block)
        return fail(player, "sends dK, dV that it does not have, or not home");
      player.partial.erase(found);
    }
    if (player.gradients.empty()) player.arriving_gradient = 0;
    if (!start(player, step, 4, player.gradients)) return false;
    player.arriving_gradient += count_rows(step.arriving_rows);
    return player.arriving_gradient <= player.room.arriving_gradient ||
           fail(player, "the dK, dV that arrive do not fit in their buffer");
  }

  // A transfer is complete when both sides have started it, in the same place of their order. The
  // own send must have found its receive too: a synchronous send would wait for it.
  bool await(Player& player, std::deque<Pending>& under_way, const Step& step) {
    if (under_way.empty()) return fail(player, "waits for what it has not started");
    const Pending& pending = under_way.front();
    const Step& started = pending.step;
    if (started.to >= 0 &&
        posted_[{player.u, player.r, started.to, started.kind}].size() <= pending.sent) {
      return false;
    }
    if (started.from >= 0) {
      const Wire wire{player.u, started.from, player.r, started.kind};
      if (sent_[wire].size() <= pending.received) return false;
      const Message& message = sent_[wire][pending.received];
      if (message.block != started.arriving || message.rows != started.arriving_rows ||
          message.bytes != started.bytes_received) {
        return fail(player, fmt::format("wants {} bytes of block {}, is sent {} bytes of block {}",
                                        started.bytes_received, started.arriving, message.bytes,
                                        message.block));
      }
    }
    if (step.to != started.to || step.from != started.from ||
        step.arriving_rows != started.arriving_rows) {
      return fail(player, "waits for another transfer than it started");
    }
    const bool ok = started.kind == StepKind::kShiftGradient ? come_home(player, started)
                                                             : arrive(player, started);
    under_way.pop_front();
    return ok;
  }

  bool arrive(Player& player, const Step& started) {
    if (started.from >= 0) player.parts[started.arriving] = started.arriving_rows;
    return true;
  }

  bool come_home(Player& player, const Step& started) {
    if (started.to >= 0)
      player.partial_rows[player.partial_buffer_of[started.block]] -= count_rows(started.rows);
    if (started.from < 0) return true;
    if (started.arriving != player.r) return fail(player, "receives dK, dV of a foreign block");
    if (!player.home.emplace(started.from, started.arriving_rows).second)
      return fail(player, fmt::format("adds dK, dV of rank {} twice", started.from));
    return true;
  }

  bool attend(Player& player, const Step& step) {
    const auto part = player.parts.find(step.block);
    if (part == player.parts.end() || part->second != step.rows)
      return fail(player, "attends to rows it does not have");
    if (step.pairs != visible_pairs(player.r, step.block, step.rows))
      return fail(player, "wrong number of pairs");
    if (!player.attended.emplace(step.block, step.rows).second)
      return fail(player, fmt::format("attends to block {} twice", step.block));
    if (backward_ && step.block != player.r) {
      const int64_t rows = count_rows(step.rows);
      if (!put(player.partial_rows, player.partial_turn, player.attending == 0, rows,
               player.room.partial_gradient))
        return fail(player, "dK, dV for others do not fit in their buffer");
      player.attending += rows;
      player.partial_buffer_of[step.block] = player.partial_turn;
      player.partial[step.block] = step.rows;
    }
    if (const auto found = player.buffer_of.find(step.block); found != player.buffer_of.end()) {
      player.travelling[found->second] -= count_rows(step.rows);  // nobody needs them any more
      player.parts.erase(step.block);
    }
    return true;
  }

  // A head exchange is done when all ranks of its Ulysses group stand before it.
  bool exchange_heads(int r) {
    std::vector<Player*> group;
    int64_t sent = 0, received = 0;
    for (Player& player : players_) {
      if (player.r != r) continue;
      if (player.next >= list(player).size()) return false;
      const Step& step = list(player)[player.next];
      if (step.kind != StepKind::kExchangeIn && step.kind != StepKind::kExchangeOut) return false;
      if (!group.empty() && step.kind != list(*group[0])[group[0]->next].kind)
        return fail(player, "another rank of the group does another step");
      sent += step.bytes_sent;
      received += step.bytes_received;
      group.push_back(&player);
    }
    if (sent != received) {
      return fail(*group[0],
                  fmt::format("the group sends {} bytes and receives {}", sent, received));
    }
    for (Player* player : group) ++player->next;
    return true;
  }

  // Segment ids of the rows of ring block r, row by row: found otherwise than the lists find them.
  std::vector<std::vector<int32_t>> ids_of(int r) const {
    std::vector<std::vector<int32_t>> ids;
    for (size_t row = 0; row < layout_.documents.size(); ++row) {
      std::vector<int32_t> whole(layout_.placement.sequence_length(), 0);
      for (const Document& document : layout_.documents[row]) {
        std::fill_n(whole.begin() + document.begin, document.count, document.segment);
      }
      const std::vector<Run>& runs = runs_of_row(r, row);
      take_rows(runs, whole, ids.emplace_back(count_rows(runs)));
    }
    return ids;
  }
  const std::vector<Run>& runs_of_row(int r, size_t row) const {
    return runs_[r][runs_[r].size() == 1 ? 0 : row];
  }
  BlockRows rows_of(int r, size_t row) const {
    return {runs_of_row(r, row), ids_[r].empty() ? std::span<const int32_t>() : ids_[r][row]};
  }

  // Of the queries of ring block r and these rows of `block`, over the batch rows that differ.
  int64_t visible_pairs(int r, int block, const Rows& rows) const {
    int64_t pairs = 0;
    for (size_t row = 0; row < std::max(runs_[r].size(), ids_[r].size()); ++row) {
      const BlockRows all = rows_of(block, row);
      const std::vector<Run> keys = runs_of(all.runs, rows);
      std::vector<int32_t> ids;
      for (const RowRange& range : rows) {
        if (all.segments.empty()) break;
        const auto part = all.segments.subspan(range.begin, range.count);
        ids.insert(ids.end(), part.begin(), part.end());
      }
      pairs += count_visible_pairs({rows_of(r, row), {keys, ids}, layout_.kind, layout_.window});
    }
    return pairs;
  }
  int64_t visible_pairs(int r, int block) const {
    return visible_pairs(r, block, {{0, layout_.placement.ring_block_rows(block)}});
  }

  std::string final_fault() {
    for (Player& player : players_) {
      if (player.next < list(player).size()) {
        fail(player, "waits for ever");
        return fault_;
      }
      const auto of_rank = [&](const std::string& what) {
        return fmt::format("ring rank {}, Ulysses rank {}: {}", player.r, player.u, what);
      };
      if (!player.shifts.empty() || !player.gradients.empty())
        return of_rank("never awaits a transfer it started");
      if (!player.buffer_of.empty() && player.parts.size() > 1)
        return of_rank("receives rows that it never attends to");
      if (!player.partial.empty()) return of_rank("keeps dK, dV that belong to another rank");
      if (layout_.row_elements(player.u) == 0) continue;  // no heads, so nothing to attend to
      for (int block = 0; block < layout_.ring_size(); ++block) {
        const auto found = player.attended.find(block);
        const Rows rows = found == player.attended.end() ? Rows{} : found->second;
        if (visible_pairs(player.r, block, rows) != visible_pairs(player.r, block))
          return of_rank(fmt::format("does not attend to all that it sees of block {}", block));
      }
      if (backward_ && !is_home_complete(player))
        return of_rank("dK, dV at home lack the part of a rank that attended");
    }
    for (const auto& [wire, messages] : sent_) {
      if (messages.size() == posted_[wire].size()) continue;
      return fmt::format("a message from ring rank {} to {} is never received", std::get<1>(wire),
                         std::get<2>(wire));
    }
    return {};
  }

  // Each other rank that attended to the block of this one has sent what it got.
  bool is_home_complete(const Player& player) const {
    std::map<int, Rows> expected;
    for (const Player& other : players_) {
      if (other.u != player.u || other.r == player.r) continue;
      const auto found = other.attended.find(player.r);
      if (found != other.attended.end()) expected.emplace(other.r, found->second);
    }
    return expected == player.home;
  }

  const AttentionLayout& layout_;
  bool backward_;
  const std::vector<std::vector<std::vector<Step>>>& steps_;
  // Of every ring block: block_runs, and the ids of its rows for each batch row with documents.
  std::vector<std::vector<std::vector<Run>>> runs_;
  std::vector<std::vector<std::vector<int32_t>>> ids_;
  std::vector<Player> players_;
  std::map<Wire, std::vector<Message>> sent_, posted_;
  std::string fault_;
};

}  // namespace

std::string find_fault(const AttentionLayout& layout, Direction direction,
                       const std::vector<std::vector<std::vector<Step>>>& steps) {
  return Game(layout, direction, steps).play();
}

std::string find_fault(const AttentionLayout& layout) {
  for (Direction direction : {Direction::kForward, Direction::kBackward}) {
    std::vector<std::vector<std::vector<Step>>> steps(layout.ring_size());
    for (int r = 0; r < layout.ring_size(); ++r) {
      for (int u = 0; u < layout.ulysses_size(); ++u) {
        steps[r].push_back(direction == Direction::kForward ? forward_schedule(layout, r, u)
                                                            : backward_schedule(layout, r, u));
      }
    }
    const std::string fault = find_fault(layout, direction, steps);
    if (!fault.empty()) {
      return (direction == Direction::kForward ? "forward: " : "backward: ") + fault;
    }
  }
  return {};
}

}  // namespace odyssey
