// SPDX-License-Identifier: Apache-2.0
// The schedule of one attention call: a plain list of the steps that one rank does, made from
// layout numbers alone. The executor (context/) runs it, a planner can price it, the checker proves
// it.
//
// All strategies are one family: an inner head exchange over U Ulysses ranks around an outer
// exchange of key/value blocks over R ring ranks, by shifting or by gathering.
//   all_gather  U = 1, gather        ring  U = 1, shift        ulysses  R = 1        usp  both
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "odyssey/schedule/head_map.h"
#include "odyssey/sequence/block_mask.h"
#include "odyssey/sequence/placement.h"

namespace odyssey {

struct AttentionLayout {
  Placement placement;
  HeadMap heads;
  bool outer_gather = false;
  int64_t batch = 1;          // B
  int64_t head_size = 1;      // D
  int64_t element_bytes = 4;  // of q, k, v, out on the wire; dk and dv always travel in fp32
  MaskKind kind = MaskKind::kCausal;
  int64_t window = 0;
  // Where the tokens of each batch row sit, B entries of the same sizes as `placement`; empty: all
  // rows as `placement`. Only kPerDocument rows differ (sequence/placement.h, row_placements).
  std::vector<Placement> rows = {};

  int ring_size() const { return placement.ring_size(); }
  int ulysses_size() const { return placement.ulysses_size(); }
  // Elements of K (or of V) of ring block r on Ulysses rank u: what one block has.
  int64_t block_elements(int r, int u) const {
    return batch * placement.ring_block_rows(r) * heads.kv_count(u) * head_size;
  }
};

// Visible pairs of the queries of ring block r and the keys of `block`, segments not considered: of
// one batch row, or of all of them where they differ.
int64_t visible_pairs(const AttentionLayout& layout, int r, int block);

enum class StepKind {
  kExchangeIn,       // Ulysses all-to-all: all heads of some tokens -> some heads of all tokens
  kGather,           // ring all-gather: every block comes to this rank
  kShift,            // starts: block `block` goes to `to`, block `arriving` comes from `from`
  kAwaitShift,       // block `arriving` is here, and `block` has left
  kAttend,           // own queries attend to block `block` (forward or backward)
  kShiftGradient,    // starts: dK, dV of `block` go to `to`, those of `arriving` come from `from`
  kAwaitGradient,    // dK, dV of `arriving` are here; they are added to what this rank has for it
  kReduceGradients,  // ring reduce-scatter of dK, dV of all blocks: backward of kGather
  kExchangeOut,  // Ulysses all-to-all back: some heads of all tokens -> all heads of some tokens
};
std::string name_of(StepKind kind);

struct Step {
  StepKind kind;
  int to = -1, from = -1;  // rank within the ring, for shifts
  int block = -1;          // ring block
  int arriving = -1;       // ring block
  int64_t bytes_sent = 0;  // by this rank to others; 0 for steps that only wait
  int64_t bytes_received = 0;
  int64_t pairs = 0;  // visible_pairs of kAttend
};

// The steps of ring rank r, Ulysses rank u. Pure: same input, same list.
std::vector<Step> forward_schedule(const AttentionLayout& layout, int r, int u);
std::vector<Step> backward_schedule(const AttentionLayout& layout, int r, int u);

// Sum over the list.
int64_t bytes_sent(const std::vector<Step>& steps);

}  // namespace odyssey
