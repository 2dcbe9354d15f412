// SPDX-License-Identifier: Apache-2.0
// Block attention forward on bf16 matrix tiles: the order of steps over chunks of keys and blocks
// of queries. A step is attention_forward_step_amx.h, the state of a row attention_state_amx.h.
#include "odyssey/kernels/attention_forward_step_amx.h"
#include "odyssey/kernels/attention_state_amx.h"

namespace odyssey::amx {
namespace {

// Key tiles that every block goes through before any block goes on: whole chunks, 256 KiB of K and
// V for all blocks to find in L2 (measured against single chunks: 5 % at head size 64, 1 % at 128).
int64_t span_tiles(const Shape& shape) {
  const int64_t chunk = chunk_tiles(shape);
  return 32 / shape.steps / chunk * chunk;
}

struct Memory {
  alignas(64) float dummy[1024];
  alignas(64) float most[kQueries], sum[kQueries];
  alignas(64) float scores[2][kKeys * kQueries];
  alignas(64) uint16_t p[2][kMostTiles * kKeys * kQueries];
  alignas(64) Row rows[kForwardBlocks];
  // Then accumulators and packed queries of all blocks.
};

// Walks over spans of keys, query blocks, chunks and visible tiles, two steps behind each other.
class Pipeline {
 public:
  Pipeline(const QueryBlock* blocks, int64_t count, const KeyHead& keys, const Shape& shape,
           Memory& memory)
      : blocks_(blocks),
        count_(count),
        keys_(keys),
        shape_(shape),
        memory_(memory),
        kernels_(shape.record_max ? kernels_for<Beside::kSoftmaxAndMaxima>(shape.steps)
                                  : kernels_for<Beside::kSoftmax>(shape.steps)),
        padded_(shape.padded()),
        chunk_(chunk_tiles(shape)),
        span_size_(span_tiles(shape)),
        scaled_(shape.soft_cap != 0 || !(shape.scale > 1e-30f)),
        factor_(scaled_ ? kLog2E : shape.scale * kLog2E),
        held_(memory.dummy) {}

  void run() {
    // A step forms the scores of a tile and the probabilities of that of the step before.
    Group group[3];  // of the scores, of the softmax, of P V
    Group *next = &group[0], *last = nullptr, *ready = nullptr;
    int64_t step = 0, units_done = 0;
    for (int64_t groups = 0; next_group(*next); ++groups) {
      next->p = memory_.p[groups & 1];
      for (int64_t t = 0; t < next->count; ++t, ++step) {
        // The step before is the last one of its group when this one is the first.
        const bool first = t == 0;
        Group* softmax = first ? last : next;
        const int64_t softmax_tile = !first ? t - 1 : last != nullptr ? last->count - 1 : 0;
        Step j = step_of(*next, t, step);
        RunStep kernel = kernels_.scores;
        if (softmax != nullptr) {
          j.last_scores = memory_.scores[(step - 1) & 1];
          settle(*softmax, softmax_tile, j.last_scores, ready, units_done);
          j.last = softmax->row;
          j.p = softmax->p + softmax_tile * 2048;
          j.factor = factor_;
          kernel = kernels_.scores_softmax;
          if (ready != nullptr && units_done < shape_.steps) {
            const int64_t left = shape_.steps - units_done;
            const int64_t steps_left = softmax->count - softmax_tile;
            j.ready = ready;
            j.first_unit = units_done;
            j.units = left <= steps_left ? 1 : (left + steps_left - 1) / steps_left;
            units_done += j.units;
            kernel = kernels_.all;
          }
        }
        j.held = held_;
        held_ = kernel(j);
        if (kernel != kernels_.all) held_ = memory_.dummy;
        if (softmax != nullptr) {
          keep_softmax(*softmax, softmax_tile, j.last_scores, ready, units_done);
        }
        adjust(*next, t, step);
        if (first && last != nullptr) {
          ready = last;
          units_done = 0;
        }
      }
      last = next;
      next = &group[(groups + 1) % 3];
    }
    if (last != nullptr) drain(*last, ready, step - 1, units_done);
  }
  float to_score() const { return scaled_ ? 1 : shape_.scale; }

 private:
  // A block stays for all chunks of a span: its sums and queries are in L1 from the second one on.
  bool next_group(Group& g) {
    const int64_t tiles = span_size_;
    for (; span_ < keys_.tiles; span_ += tiles, block_ = 0, steps_in_span_ = 0) {
      const int64_t end = keys_.tiles < span_ + tiles ? keys_.tiles : span_ + tiles;
      for (; block_ < count_; ++block_, tile_ = 0) {
        take_tiles(blocks_[block_], end, g);
        if (g.count == 0) continue;
        g.row = &memory_.rows[block_];
        g.fresh = g.row->fresh;
        g.row->fresh = false;
        g.first_step = steps_in_span_;
        steps_in_span_ += g.count;
        return true;
      }
    }
    return false;
  }

  // The next chunk of what the block sees of the span, which ends at `end`.
  void take_tiles(const QueryBlock& block, int64_t end, Group& g) {
    g.count = 0;
    for (; span_ + tile_ < end && g.count < chunk_; ++tile_) {
      const int64_t t = span_ + tile_;
      if (block.seen[t] == Seen::kNone) continue;
      g.tiles[g.count] = t;
      g.partial[g.count] = block.seen[t] == Seen::kPart;
      g.v[g.count++] = keys_.v + t * kKeys * padded_;
    }
  }

  Step step_of(const Group& g, int64_t t, int64_t step) const {
    Step j{};
    j.steps = shape_.steps;
    j.k = keys_.k + g.tiles[t] * kKeys * padded_;
    j.q = g.row->q;
    j.scores = memory_.scores[step & 1];
    j.most = memory_.most;
    j.sum = memory_.sum;
    // The keys of the next span and then its values, a share a step.
    const int64_t tiles = span_size_, bytes = tiles * kKeys * padded_ * 2;
    const int64_t share = shape_.steps * 1024;
    const int64_t at = (g.first_step + t) * share;
    if (span_ + 2 * tiles <= keys_.tiles && at < 2 * bytes) {
      const uint16_t* from = at < bytes ? keys_.k : keys_.v;
      const char* base = reinterpret_cast<const char*>(from + (span_ + tiles) * kKeys * padded_);
      j.ahead = base + (at < bytes ? at : at - bytes);
    }
    return j;
  }

  void adjust(const Group& g, int64_t t, int64_t step) {
    if (!scaled_ && !g.partial[t]) return;
    const int64_t key = g.tiles[t] * kKeys;
    adjust_scores(memory_.scores[step & 1], shape_, *g.row, g.partial[t], scaled_,
                  keys_.position + key, keys_.segment + key);
  }

  // What the last step left: its softmax, and P V of the last two groups.
  void drain(const Group& last, const Group* ready, int64_t step, int64_t units_done) {
    const int64_t t = last.count - 1;
    const float* scores = memory_.scores[step & 1];
    settle(last, t, scores, ready, units_done);
    softmax_alone(scores, *last.row, last.p + t * 2048, factor_, memory_.sum, memory_.most);
    keep_softmax(last, t, scores, ready, units_done);
    if (ready != nullptr) held_ = values_alone(*ready, units_done, shape_.steps, held_);
    held_ = values_alone(last, 0, shape_.steps, held_);
    store_held(held_);
    fence();
  }

  // Before the first softmax of a row: references for the queries that have none. Those that see
  // nothing of this tile outgrow theirs once they see something.
  void settle(const Group& g, int64_t t, const float* scores, const Group* ready,
              int64_t& units_done) {
    if (g.row->settled) return;
    g.row->settled = true;
    maxima(scores, memory_.most);
    raise(g, t, unsettled(*g.row), ready, units_done);
  }

  // After it: once more with a better reference for the queries whose sums are too large.
  void keep_softmax(const Group& g, int64_t t, const float* scores, const Group* ready,
                    int64_t& units_done) {
    if (shape_.record_max) keep_top(*g.row, memory_.most);
    const __mmask32 queries = outgrown(memory_.sum);
    if (queries != 0) {
      maxima(scores, memory_.most);
      raise(g, t, queries, ready, units_done);
      softmax_alone(scores, *g.row, g.p + t * 2048, factor_, memory_.sum, memory_.most);
    }
    keep_sum(*g.row, memory_.sum);
  }

  // Raises references. What belongs to this row but is not in its accumulator yet is added first.
  void raise(const Group& g, int64_t t, __mmask32 queries, const Group* ready,
             int64_t& units_done) {
    if (ready != nullptr && ready->row == g.row && units_done < shape_.steps) {
      held_ = values_alone(*ready, units_done, shape_.steps, held_);
      units_done = shape_.steps;
    }
    store_held(held_);
    held_ = memory_.dummy;
    rescale(*g.row, queries, memory_.most, factor_, g.p, t, padded_);
  }

  const QueryBlock* blocks_;
  int64_t count_;
  const KeyHead& keys_;
  const Shape& shape_;
  Memory& memory_;
  const Kernels& kernels_;
  int64_t padded_;             // head size
  int64_t chunk_, span_size_;  // in key tiles
  bool scaled_;                // scale and cap are applied before the exponent
  float factor_;               // scores to exponents of 2
  float* held_;
  int64_t span_ = 0, block_ = 0, tile_ = 0;  // first tile of the span; next block; next tile of it
  int64_t steps_in_span_ = 0;
};

}  // namespace

// As many units of P V as steps, so that every step runs the same number of products.
int64_t chunk_tiles(const Shape& shape) {
  return shape.steps < kMostTiles ? shape.steps : kMostTiles;
}

int64_t forward_bytes(const Shape& shape, int64_t blocks) {
  return static_cast<int64_t>(sizeof(Memory)) + blocks * kQueries * shape.padded() * 6;
}

void forward(const QueryBlock* blocks, int64_t count, const KeyHead& keys, const Shape& shape,
             const Finish& finish, void* scratch) {
  const Tiles tiles;
  Memory& memory = *static_cast<Memory*>(scratch);
  const int64_t words = kQueries * shape.padded();
  float* accumulators = reinterpret_cast<float*>(&memory + 1);
  uint16_t* queries = reinterpret_cast<uint16_t*>(accumulators + count * words);
  for (int64_t b = 0; b < count; ++b) {
    memory.rows[b].accumulator = accumulators + b * words;
    RowFetch ahead;
    if (b + 1 < count) {
      ahead = {blocks[b + 1].q, blocks[b + 1].q_stride, blocks[b + 1].rows, shape};
    }
    begin_row(blocks[b], shape, ahead, memory.rows[b], queries + b * words);
  }
  Pipeline pipeline(blocks, count, keys, shape, memory);
  pipeline.run();
  for (int64_t b = 0; b < count; ++b) {
    const Row& row = memory.rows[b];
    if (row.fresh) clear_accumulator(shape, row);
    alignas(64) float shrink[kQueries], factors[kQueries];
    const __mmask32 rows = end_row(blocks[b], shape, row, pipeline.to_score(), shrink);
    if (blocks[b].out == nullptr) {
      write_accumulator(blocks[b], shape, row, shrink, rows);
    } else {
      finish.factors(finish.context, b, factors);
      write_out(blocks[b], shape, row, shrink, factors);
    }
  }
  _mm_sfence();
}

}  // namespace odyssey::amx
