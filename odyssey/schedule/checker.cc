// SPDX-License-Identifier: Apache-2.0
#include "odyssey/schedule/checker.h"

#include <map>
#include <set>

#include <fmt/core.h>

namespace odyssey {
namespace {

// What one rank holds while the lists are played.
struct Player {
  int r = 0, u = 0;
  size_t next = 0;       // step to do
  std::set<int> blocks;  // K/V blocks that are here
  std::map<int, std::multiset<int>>
      gradients;                // block -> ring ranks whose part is in its dK, dV here
  std::map<int, int> attended;  // block -> times
};

class Game {
 public:
  Game(const AttentionLayout& layout, Direction direction,
       const std::vector<std::vector<std::vector<Step>>>& steps)
      : layout_(layout), backward_(direction == Direction::kBackward), steps_(steps) {
    for (int r = 0; r < layout.ring_size(); ++r) {
      for (int u = 0; u < layout.ulysses_size(); ++u) {
        Player player;
        player.r = r;
        player.u = u;
        player.blocks.insert(r);
        // After a gathering forward call all blocks are still there.
        if (backward_ && layout.outer_gather) {
          for (int block = 0; block < layout.ring_size(); ++block) player.blocks.insert(block);
        }
        players_.push_back(player);
      }
    }
  }

  std::string play() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Player& player : players_) {
        while (player.next < list(player).size() && advance(player)) moved = true;
        if (!fault_.empty()) return fault_;
      }
      if (play_collectives()) moved = true;
      if (!fault_.empty()) return fault_;
    }
    return final_fault();
  }

 private:
  using Wire = std::tuple<int, int, int, StepKind>;  // u, from, to, kind
  struct Message {
    int block;
    int64_t bytes;
    std::multiset<int> parts;
  };

  const std::vector<Step>& list(const Player& player) const { return steps_[player.r][player.u]; }
  void fail(const Player& player, const Step& step, const std::string& what) {
    if (!fault_.empty()) return;
    fault_ = fmt::format("ring rank {}, Ulysses rank {}, step {} ({}): {}", player.r, player.u,
                         player.next, name_of(step.kind), what);
  }

  // Does the next step of a rank, unless it has to wait; false when it waits.
  bool advance(Player& player) {
    const Step& step = list(player)[player.next];
    switch (step.kind) {
      case StepKind::kShift:
        if (!player.blocks.contains(step.block))
          fail(player, step, "sends a block it does not have");
        start(player, step, {});
        break;
      case StepKind::kShiftGradient:
        start(player, step, player.gradients[step.block]);
        player.gradients.erase(step.block);
        break;
      case StepKind::kAwaitShift:
      case StepKind::kAwaitGradient:
        if (!await(player, step)) return false;
        break;
      case StepKind::kAttend:
        attend(player, step);
        break;
      default:
        return false;  // collectives wait for their whole group
    }
    ++player.next;
    return true;
  }

  void start(Player& player, const Step& step, std::multiset<int> parts) {
    wires_[{player.u, player.r, step.to, step.kind}].push_back(
        {step.block, step.bytes_sent, std::move(parts)});
    posted_[{player.u, step.from, player.r, step.kind}].push_back(
        {step.arriving, step.bytes_received, {}});
  }

  // A transfer is complete when both sides have started it, in the same place of their order.
  bool await(Player& player, const Step& step) {
    const StepKind kind =
        step.kind == StepKind::kAwaitShift ? StepKind::kShift : StepKind::kShiftGradient;
    const int ring = layout_.ring_size();
    const Wire wire{player.u, (player.r + ring - 1) % ring, player.r, kind};
    const size_t index = taken_[wire];
    if (posted_[wire].size() <= index) {
      fail(player, step, "waits for what it has not started to receive");
      return false;
    }
    if (wires_[wire].size() <= index) return false;
    const Message& message = wires_[wire][index];
    const Message& wanted = posted_[wire][index];
    if (message.block != wanted.block || message.bytes != wanted.bytes) {
      fail(player, step,
           fmt::format("wants block {} of {} bytes, is sent block {} of {} bytes", wanted.block,
                       wanted.bytes, message.block, message.bytes));
    }
    // The own send must have found its receive too: a synchronous send would wait here.
    const Wire outgoing{player.u, player.r, (player.r + 1) % ring, kind};
    if (posted_[outgoing].size() <= index) return false;
    if (kind == StepKind::kShift) {
      player.blocks.erase(step.block);
      if (step.block == player.r) player.blocks.insert(step.block);  // the own block is kept
      player.blocks.insert(step.arriving);
    } else {
      player.gradients[step.arriving].insert(message.parts.begin(), message.parts.end());
    }
    ++taken_[wire];
    return true;
  }

  void attend(Player& player, const Step& step) {
    if (!player.blocks.contains(step.block))
      fail(player, step, "attends to a block it does not have");
    if (step.pairs != visible_pairs(layout_, player.r, step.block))
      fail(player, step, "wrong number of pairs");
    ++player.attended[step.block];
    if (backward_) player.gradients[step.block].insert(player.r);
  }

  // A collective step is done when all ranks of its group stand before the same kind.
  bool play_collectives() {
    bool moved = false;
    for (int r = 0; r < layout_.ring_size(); ++r) moved |= play_collective(r, -1);
    for (int u = 0; u < layout_.ulysses_size(); ++u) moved |= play_collective(-1, u);
    return moved;
  }

  bool play_collective(int r, int u) {
    std::vector<Player*> group;
    int64_t sent = 0, received = 0;
    const bool inner = u < 0;
    for (Player& player : players_) {
      if (inner ? player.r != r : player.u != u) continue;
      if (player.next >= list(player).size()) return false;
      const Step& step = list(player)[player.next];
      const bool is_inner =
          step.kind == StepKind::kExchangeIn || step.kind == StepKind::kExchangeOut;
      const bool is_outer =
          step.kind == StepKind::kGather || step.kind == StepKind::kReduceGradients;
      if (!(inner ? is_inner : is_outer)) return false;
      if (!group.empty() && step.kind != list(*group[0])[group[0]->next].kind) {
        fail(player, step, "another rank of the group does another step");
        return false;
      }
      sent += step.bytes_sent;
      received += step.bytes_received;
      group.push_back(&player);
    }
    const Step& step = list(*group[0])[group[0]->next];
    if (sent != received) {
      fail(*group[0], step,
           fmt::format("the group sends {} bytes and receives {}", sent, received));
    }
    std::map<int, std::multiset<int>> sums;
    for (Player* player : group) {
      for (const auto& [block, parts] : player->gradients)
        sums[block].insert(parts.begin(), parts.end());
    }
    for (Player* player : group) {
      if (step.kind == StepKind::kGather) {
        for (int block = 0; block < layout_.ring_size(); ++block) player->blocks.insert(block);
      }
      if (step.kind == StepKind::kReduceGradients)
        player->gradients = {{player->r, sums[player->r]}};
      ++player->next;
    }
    return true;
  }

  std::string final_fault() {
    const int ring = layout_.ring_size();
    for (Player& player : players_) {
      if (player.next < list(player).size()) {
        fail(player, list(player)[player.next], "waits for ever");
        return fault_;
      }
      for (int block = 0; block < ring; ++block) {
        const int times = visible_pairs(layout_, player.r, block) > 0 ? 1 : 0;
        if (player.attended[block] != times) {
          return fmt::format(
              "ring rank {}, Ulysses rank {}: attends {} times to block {}, should {}", player.r,
              player.u, player.attended[block], block, times);
        }
      }
      if (!backward_) continue;
      std::multiset<int> everyone;
      for (int r = 0; r < ring; ++r) {
        if (visible_pairs(layout_, r, player.r) > 0) everyone.insert(r);
      }
      if (player.gradients[player.r] != everyone) {
        return fmt::format(
            "ring rank {}, Ulysses rank {}: dK, dV at home lack the part of a rank or hold it "
            "twice",
            player.r, player.u);
      }
    }
    for (const auto& [wire, messages] : wires_) {
      if (messages.size() != taken_[wire]) {
        return fmt::format("a message from ring rank {} to {} is never received", std::get<1>(wire),
                           std::get<2>(wire));
      }
    }
    return {};
  }

  const AttentionLayout& layout_;
  bool backward_;
  const std::vector<std::vector<std::vector<Step>>>& steps_;
  std::vector<Player> players_;
  std::map<Wire, std::vector<Message>> wires_, posted_;
  std::map<Wire, size_t> taken_;
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
