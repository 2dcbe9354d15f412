// SPDX-License-Identifier: Apache-2.0
// The schedule of one attention call: a plain list of the steps that one rank does, made from
// layout numbers alone. The executor (context/) runs it, a planner can price it, the checker proves
// it.
//
// All strategies are one family: an inner head exchange over U Ulysses ranks around an outer
// exchange of key/value blocks over R ring ranks, by shifting or by gathering.
//   all_gather  U = 1, gather        ring  U = 1, shift        ulysses  R = 1        usp  both
//
// The outer exchange goes in hops. At hop t = 1..R-1 ring rank r works on block r - t (mod R): the
// owner sends r the rows of it that r's queries see, and no others (sequence/needed_rows.h), and r
// sends its part of their dK and dV home. Hops without such rows are not in the list. So every rank
// receives exactly what it needs, which no other routing can undercut in bytes: a ring that passes
// blocks on would carry rows through ranks that do not see them (a sliding window over
// dual_chunk_swap looks both ways round the ring) and would take one more hop to bring dK and dV
// home. Hops go in groups of some: what one group brings is attended to in one kernel call, while
// the next group travels. Each hop is one rotation of the ranks: nobody receives from two at a
// time, and a slow rank delays only those that need its rows. The price: where several ring ranks
// share a node, each of them sends to the other nodes itself.
//
// Rows that hold several documents change with every batch, and so do their lists: a rank is not
// sent what its documents hide from it. All ranks have the segment ids of whole rows and make their
// lists from them alone, so partners agree without an exchange. of_batch makes the layout of one
// batch.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "odyssey/schedule/head_map.h"
#include "odyssey/sequence/block_mask.h"
#include "odyssey/sequence/needed_rows.h"
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
  // Rows may hold several documents, or padding: lists follow those of each batch, and buffers are
  // enough for any. A kPerDocument placement does so in any case.
  bool segmented = false;
  // Of one batch, made by of_batch. Where the tokens of each batch row sit, B entries of the same
  // sizes as `placement`; empty: all rows as `placement`. Only kPerDocument rows differ.
  std::vector<Placement> rows = {};
  // The documents of each batch row, B entries; empty: one document a row, without padding.
  std::vector<std::vector<Document>> documents = {};
  // Neighbouring hops that travel together and are attended to together: every kernel call loads
  // and stores the state, dq and the packed queries once more, every hop in flight takes memory.
  int hops_at_once = 2;

  int ring_size() const { return placement.ring_size(); }
  int ulysses_size() const { return placement.ulysses_size(); }
  bool follows_documents() const {
    return segmented || placement.kind() == PlacementKind::kPerDocument;
  }
  // Elements of K and V of one row of a block on Ulysses rank u, over the whole batch.
  int64_t row_elements(int u) const { return 2 * batch * heads.kv_count(u) * head_size; }
};

// The layout of a batch with these segment ids [B, S] in natural order, the same on every rank;
// empty: one document a row. Only layouts that follow documents differ from batch to batch.
AttentionLayout of_batch(AttentionLayout layout, std::span<const int32_t> segments);
// The same with another mask: layers of a model share all but that.
AttentionLayout with_mask(AttentionLayout layout, const MaskRule& mask);

// Where the tokens of ring block r sit: once, or for each batch row where these differ.
std::vector<std::vector<Run>> block_runs(const AttentionLayout& layout, int r);

// Visible pairs of the queries of ring block r and the keys of `block`: of one batch row, or of all
// of them where they differ.
int64_t visible_pairs(const AttentionLayout& layout, int r, int block);

// Rows of `block` that the queries of ring block r see, in any batch row.
std::vector<RowRange> needed_rows(const AttentionLayout& layout, int r, int block);

enum class StepKind {
  kExchangeIn,     // Ulysses all-to-all: all heads of some tokens -> some heads of all tokens
  kGather,         // own rows go to `to`, rows of `arriving` come from `from` and stay; waits
  kShift,          // starts: own rows go to `to`, rows of `arriving` come from `from`
  kAwaitShift,     // the rows of the oldest kShift not yet awaited are here, the own ones have left
  kAttend,         // own queries attend to `rows` of `block` (forward or backward); steps that
                   // follow each other may be one kernel call
  kShiftGradient,  // starts: dK, dV of `rows` of `block` go to their owner `to`; what rank `from`
                   // has for `arriving_rows` of the own block comes
  kAwaitGradient,  // those of the oldest kShiftGradient not yet awaited are here and are added to
                   // the own ones; the others have left
  kExchangeOut,    // Ulysses all-to-all back: some heads of all tokens -> all heads of some tokens
};
std::string name_of(StepKind kind);

struct Step {
  StepKind kind = StepKind::kAttend;
  int to = -1, from = -1;  // rank within the ring; -1 where nothing goes or comes
  int block = -1;          // ring block of `rows`
  int arriving = -1;       // ring block of `arriving_rows`
  int64_t bytes_sent = 0;  // by this rank to others; 0 for steps that only wait
  int64_t bytes_received = 0;
  int64_t pairs = 0;  // visible_pairs of kAttend
  // Rows of storage order: those that leave, or are attended to; those that arrive. A step that
  // awaits repeats what the step that started has.
  std::vector<RowRange> rows = {}, arriving_rows = {};
};

// The steps of ring rank r, Ulysses rank u. Pure: same input, same list.
std::vector<Step> forward_schedule(const AttentionLayout& layout, int r, int u);
std::vector<Step> backward_schedule(const AttentionLayout& layout, int r, int u);

// Sum over the list.
int64_t bytes_sent(const std::vector<Step>& steps);

// What ring rank r, Ulysses rank u sends in one forward and one backward call.
struct SentBytes {
  int64_t needed = 0;     // by the lists above
  int64_t untrimmed = 0;  // if every rank were sent every row of every block, whatever it sees
  int64_t saved() const { return untrimmed - needed; }
};
SentBytes sent_bytes(const AttentionLayout& layout, int r, int u);

}  // namespace odyssey
