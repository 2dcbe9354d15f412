// SPDX-License-Identifier: Apache-2.0
// Checks and dispatch of block attention: writes the mask out per row, packs keys and values of one
// head to fp32 tiles once, and hands tiles of queries to the kernels of the instruction set in use.
#include "odyssey/kernels/block_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "odyssey/base/buffer.h"
#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/attention_amx.h"
#include "odyssey/kernels/attention_rows.h"
#include "odyssey/kernels/attention_tile.h"
#include "odyssey/kernels/block_attention_ref.h"
#include "odyssey/kernels/isa.h"

namespace odyssey {
namespace {

const AttentionTileKernels& tile_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return kAttentionTilesAvx512;
  if (isa == Isa::kAvx2) return kAttentionTilesAvx2;
#endif
  (void)isa;
  return kAttentionTilesPortable;
}

template <class T>
T* grown(Buffer<T>& buffer, int64_t size) {
  if (buffer.size() < size) buffer = Buffer<T>(size);
  return buffer.data();
}

// Memory that a rank keeps from call to call; it grows in the first step and then stays.
struct Scratch {
  AttentionRows rows;
  Buffer<float> k, v, dk, dv;
  Buffer<int32_t> position, segment;
};
Scratch& rank_scratch() {
  thread_local Scratch scratch;
  return scratch;
}
// bf16 goes to matrix tiles where the processor has them.
template <class T>
bool runs_on_matrix_tiles(int64_t head_size) {
#if defined(__x86_64__)
  return std::is_same_v<T, bf16> && isa_in_use() == Isa::kAmx && head_size <= amx::kMostHeadSize;
#else
  (void)head_size;
  return false;
#endif
}

float* thread_scratch(int64_t words) {
  thread_local Buffer<float> buffer;
  return grown(buffer, words);
}

int64_t tiles_of(int64_t rows, int64_t tile) {
  return (rows + tile - 1) / tile;
}

// All key tiles of one key/value head, packed.
class PackedHead {
 public:
  PackedHead(Scratch& scratch, int64_t head_size)
      : scratch_(scratch),
        keys_(scratch.rows.keys()),
        head_size_(head_size),
        padded_(padded_head_size(head_size)) {
    const int64_t padded_keys = tiles() * kKeyTile;
    grown(scratch.k, padded_keys * padded_);
    grown(scratch.v, padded_keys * padded_);
    int32_t* position = grown(scratch.position, padded_keys);
    int32_t* segment = grown(scratch.segment, padded_keys);
    std::copy(scratch.rows.position(), scratch.rows.position() + keys_, position);
    std::copy(scratch.rows.key_segment(), scratch.rows.key_segment() + keys_, segment);
    std::fill(position + keys_, position + padded_keys, 0);
    std::fill(segment + keys_, segment + padded_keys, 0);
  }
  int64_t tiles() const { return tiles_of(keys_, kKeyTile); }

  template <class T>
  void pack(View<const T, 3> k, View<const T, 3> v, int64_t g) {
    parallel_ranges(tiles() * kKeyTile, 512, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        pack_row(k, g, j, scratch_.k.data() + j * padded_);
        pack_row(v, g, j, scratch_.v.data() + j * padded_);
      }
    });
  }
  void clear_gradients() {
    const int64_t words = tiles() * kKeyTile * padded_;
    std::fill_n(grown(scratch_.dk, words), words, 0.0f);
    std::fill_n(grown(scratch_.dv, words), words, 0.0f);
  }
  void add_gradients(View<float, 3> dk, View<float, 3> dv, int64_t g) const {
    for (int64_t j = 0; j < keys_; ++j) {
      for (int64_t d = 0; d < head_size_; ++d) {
        dk(j, g, d) += scratch_.dk[j * padded_ + d];
        dv(j, g, d) += scratch_.dv[j * padded_ + d];
      }
    }
  }
  KeyTile tile(int64_t t) const {
    const int64_t row = t * kKeyTile;
    KeyTile key{scratch_.k.data() + row * padded_,
                scratch_.v.data() + row * padded_,
                scratch_.position.data() + row,
                scratch_.segment.data() + row,
                nullptr,
                nullptr};
    if (scratch_.dk.size() > 0) {
      key.dk = scratch_.dk.data() + row * padded_;
      key.dv = scratch_.dv.data() + row * padded_;
    }
    return key;
  }

 private:
  template <class T>
  void pack_row(View<const T, 3> from, int64_t g, int64_t j, float* out) const {
    std::fill_n(out, padded_, 0.0f);
    if (j >= keys_) return;
    const T* row = &from(j, g, 0);
    for (int64_t d = 0; d < head_size_; ++d) out[d] = to_float(row[d]);
  }

  Scratch& scratch_;
  int64_t keys_, head_size_, padded_;
};

// The key tiles that query tile `qt` sees.
struct VisibleTiles {
  std::vector<KeyTile> tiles;
  std::vector<char> partial;

  void find(const AttentionRows& rows, const PackedHead& head, int64_t qt) {
    tiles.clear();
    partial.clear();
    const bool ragged_queries = (qt + 1) * kQueryTile > rows.queries();
    for (int64_t t = 0; t < head.tiles(); ++t) {
      const Visibility seen = rows.tile(qt, t);
      if (seen == Visibility::kHidden) continue;
      const bool ragged = ragged_queries || (t + 1) * kKeyTile > rows.keys();
      tiles.push_back(head.tile(t));
      partial.push_back(ragged || seen == Visibility::kPartial);
    }
  }
  KeyTileList list() const {
    static_assert(sizeof(bool) == sizeof(char));
    return {tiles.data(), reinterpret_cast<const bool*>(partial.data()),
            static_cast<int64_t>(tiles.size())};
  }
};
VisibleTiles& thread_tiles() {
  thread_local VisibleTiles tiles;
  return tiles;
}

template <class T>
QueryTile query_tile(View<const T, 3> q, const AttentionRows& rows, int64_t h, int64_t first) {
  QueryTile tile{};
  tile.q = &q(first, h, 0);
  tile.q_stride = q.stride(0);
  tile.rows = std::min(kQueryTile, q.extent(0) - first);
  tile.least = rows.least() + first;
  tile.most = rows.most() + first;
  tile.segment = rows.query_segment() + first;
  return tile;
}

template <class T>
void check_shapes(View<const T, 3> q, View<const T, 3> k, View<const T, 3> v, const BlockMask& mask,
                  const AttentionOptions& options) {
  ODYSSEY_CHECK(q.extent(2) == k.extent(2) && q.extent(2) == v.extent(2), "head sizes {} {} {}",
                q.extent(2), k.extent(2), v.extent(2));
  ODYSSEY_CHECK(k.extent(0) == v.extent(0) && k.extent(1) == v.extent(1), "keys {} values {}",
                k.extent(0), v.extent(0));
  ODYSSEY_CHECK(count_rows(mask.queries.runs) == q.extent(0), "{} rows, mask of {}", q.extent(0),
                count_rows(mask.queries.runs));
  ODYSSEY_CHECK(count_rows(mask.keys.runs) == k.extent(0), "{} rows, mask of {}", k.extent(0),
                count_rows(mask.keys.runs));
  ODYSSEY_CHECK(q.extent(1) == 0 || options.kv_head_of(q.extent(1) - 1) < k.extent(1),
                "query head {} needs KV head {} of {}", q.extent(1) - 1,
                options.kv_head_of(q.extent(1) - 1), k.extent(1));
  for (const auto* view : {&q, &k, &v}) {
    ODYSSEY_CHECK(view->extent(2) == 1 || view->stride(2) == 1, "the last axis has stride {}",
                  view->stride(2));
  }
}

// Query heads that use key/value head g.
std::pair<int64_t, int64_t> heads_of(int64_t g, int64_t heads, const AttentionOptions& options) {
  return {options.first_query_head(g, heads), options.first_query_head(g + 1, heads)};
}

// Calls body(row, head) for all of them; rows are spread over the threads.
template <class Body>
void for_rows_and_heads(int64_t rows, int64_t heads, const Body& body) {
  parallel_ranges(rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t h = 0; h < heads; ++h) body(i, h);
    }
  });
}

}  // namespace

void reset(const AttentionState& state) {
  for_rows_and_heads(state.max.extent(1), state.max.extent(0), [&](int64_t i, int64_t h) {
    state.max(h, i) = kNothingSeen;
    state.sum(h, i) = 0;
    std::fill_n(&state.accumulator(i, h, 0), state.accumulator.extent(2), 0.0f);
  });
}

template <class T>
void attend(View<const T, 3> q, View<const T, 3> k, View<const T, 3> v, const BlockMask& mask,
            const AttentionOptions& options, const AttentionState& state, const Poll& poll) {
  check_shapes(q, k, v, mask, options);
  if (q.size() == 0 || k.size() == 0) return;
  Scratch& scratch = rank_scratch();
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, bf16>) {
    if (runs_on_matrix_tiles<T>(q.extent(2))) {
      scratch.rows.fill(mask, amx::kQueries, amx::kKeys);
      return amx::attend(q, k, v, scratch.rows, options, state, poll);
    }
  }
#endif
  scratch.rows.fill(mask, kQueryTile, kKeyTile);
  const Isa isa = isa_in_use();
  if (isa == Isa::kRef) return reference::attend(q, k, v, scratch.rows, options, state);

  const AttentionTileKernels& kernels = tile_kernels(isa);
  const int64_t head_size = q.extent(2);
  const TileOptions tile_options{head_size, padded_head_size(head_size), options.scale,
                                 options.soft_cap, std::is_same_v<T, bf16>};
  PackedHead head(scratch, head_size);
  const int64_t query_tiles = tiles_of(q.extent(0), kQueryTile);
  for (int64_t g = 0; g < k.extent(1); ++g) {
    const auto [head_begin, head_end] = heads_of(g, q.extent(1), options);
    if (head_begin == head_end) continue;
    head.pack(k, v, g);
    // Late query tiles see the most keys under a causal mask: the longest items start first.
    parallel_for((head_end - head_begin) * query_tiles, [&, first = head_begin](int64_t item) {
      const int64_t qt = query_tiles - 1 - item % query_tiles;
      const int64_t h = first + item / query_tiles;
      VisibleTiles& visible_tiles = thread_tiles();
      visible_tiles.find(scratch.rows, head, qt);
      if (!visible_tiles.tiles.empty()) {
        const int64_t row = qt * kQueryTile;
        QueryTile tile = query_tile(q, scratch.rows, h, row);
        tile.max = &state.max(h, row);
        tile.sum = &state.sum(h, row);
        tile.accumulator = &state.accumulator(row, h, 0);
        tile.accumulator_stride = state.accumulator.stride(0);
        float* words = thread_scratch(kernels.scratch_words(tile_options.padded));
        kernels.forward(tile, visible_tiles.list(), tile_options, words);
      }
      if (is_calling_thread()) poll();
    });
  }
}

template <class T>
void attend_backward(View<const T, 3> q, View<const T, 3> k, View<const T, 3> v,
                     View<const T, 3> dout, View<const float, 2> lse, View<const float, 2> delta,
                     const BlockMask& mask, const AttentionOptions& options, View<float, 3> dq,
                     View<float, 3> dk, View<float, 3> dv, const Poll& poll) {
  check_shapes(q, k, v, mask, options);
  if (q.size() == 0 || k.size() == 0) return;
  Scratch& scratch = rank_scratch();
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, bf16>) {
    if (runs_on_matrix_tiles<T>(q.extent(2))) {
      scratch.rows.fill(mask, amx::kQueries, amx::kKeys);
      return amx::attend_backward(q, k, v, dout, lse, delta, scratch.rows, options, dq, dk, dv,
                                  poll);
    }
  }
#endif
  scratch.rows.fill(mask, kQueryTile, kKeyTile);
  const Isa isa = isa_in_use();
  if (isa == Isa::kRef) {
    return reference::attend_backward(q, k, v, dout, lse, delta, scratch.rows, options, dq, dk, dv);
  }
  const AttentionTileKernels& kernels = tile_kernels(isa);
  const int64_t head_size = q.extent(2);
  const TileOptions tile_options{head_size, padded_head_size(head_size), options.scale,
                                 options.soft_cap, std::is_same_v<T, bf16>};
  PackedHead head(scratch, head_size);
  VisibleTiles& visible_tiles = thread_tiles();
  float* words = thread_scratch(kernels.scratch_words(tile_options.padded));
  for (int64_t g = 0; g < k.extent(1); ++g) {
    const auto [head_begin, head_end] = heads_of(g, q.extent(1), options);
    if (head_begin == head_end) continue;
    head.pack(k, v, g);
    head.clear_gradients();
    for (int64_t h = head_begin; h < head_end; ++h) {
      for (int64_t row = 0; row < q.extent(0); row += kQueryTile) {
        visible_tiles.find(scratch.rows, head, row / kQueryTile);
        poll();
        if (visible_tiles.tiles.empty()) continue;
        QueryTile tile = query_tile(q, scratch.rows, h, row);
        tile.dout = &dout(row, h, 0);
        tile.dout_stride = dout.stride(0);
        tile.max = const_cast<float*>(&lse(h, row));
        tile.sum = const_cast<float*>(&delta(h, row));
        tile.accumulator = &dq(row, h, 0);
        tile.accumulator_stride = dq.stride(0);
        kernels.backward(tile, visible_tiles.list(), tile_options, words);
      }
    }
    head.add_gradients(dk, dv, g);
  }
}

template <class T>
void finish(const AttentionState& state, std::span<const float> sinks, View<T, 3> out,
            View<float, 2> lse) {
  const auto finish_row = [&](int64_t i, int64_t h) {
    float max = state.max(h, i);
    float sum = state.sum(h, i);
    float factor = 1;
    if (!sinks.empty()) {
      const float most = std::max(max, sinks[h]);
      factor = std::exp(max - most);
      sum = sum * factor + std::exp(sinks[h] - most);
      max = most;
    }
    const bool empty = sum == 0;
    lse(h, i) = empty ? -std::numeric_limits<float>::infinity() : max + std::log(sum);
    const float inverse = empty ? 0 : factor / sum;
    const float* from = &state.accumulator(i, h, 0);
    T* to = &out(i, h, 0);
    for (int64_t d = 0; d < out.extent(2); ++d) to[d] = T(from[d] * inverse);
  };
  for_rows_and_heads(out.extent(0), out.extent(1), finish_row);
}

template <class T>
void attention_delta(View<const T, 3> out, View<const T, 3> dout, View<float, 2> delta) {
  for_rows_and_heads(out.extent(0), out.extent(1), [&](int64_t i, int64_t h) {
    float sum = 0;
    const T* o = &out(i, h, 0);
    const T* d_o = &dout(i, h, 0);
    for (int64_t d = 0; d < out.extent(2); ++d) sum += to_float(o[d]) * to_float(d_o[d]);
    delta(h, i) = sum;
  });
}

void sink_backward(std::span<const float> sinks, View<const float, 2> lse,
                   View<const float, 2> delta, std::span<float> dsinks) {
  for (int64_t h = 0; h < lse.extent(0); ++h) {
    double sum = 0;
    for (int64_t i = 0; i < lse.extent(1); ++i) {
      sum += double{std::exp(sinks[h] - lse(h, i))} * double{delta(h, i)};
    }
    dsinks[h] -= static_cast<float>(sum);
  }
}

void update_max_logits(const AttentionState& state, std::span<float> most) {
  for (int64_t h = 0; h < state.max.extent(0); ++h) {
    for (int64_t i = 0; i < state.max.extent(1); ++i) {
      if (state.sum(h, i) > 0) most[h] = std::max(most[h], state.max(h, i));
    }
  }
}

int64_t attention_scratch_bytes(int64_t rows, int64_t head_size) {
  const int64_t padded = padded_head_size(head_size);
  const int64_t padded_rows = tiles_of(rows, kKeyTile) * kKeyTile;
#if defined(__x86_64__)
  if (runs_on_matrix_tiles<bf16>(head_size)) return amx::scratch_bytes(rows, head_size);
#endif
  // K, V, dK, dV of one head packed; positions and segments; one tile's worth a thread.
  return padded_rows * (4 * padded + 7) * 4 +
         thread_count() * tile_kernels(isa_in_use()).scratch_words(padded) * 4;
}

#define ODYSSEY_INSTANTIATE(T)                                                                    \
  template void attend<T>(View<const T, 3>, View<const T, 3>, View<const T, 3>, const BlockMask&, \
                          const AttentionOptions&, const AttentionState&, const Poll&);           \
  template void attend_backward<T>(View<const T, 3>, View<const T, 3>, View<const T, 3>,          \
                                   View<const T, 3>, View<const float, 2>, View<const float, 2>,  \
                                   const BlockMask&, const AttentionOptions&, View<float, 3>,     \
                                   View<float, 3>, View<float, 3>, const Poll&);                  \
  template void finish<T>(const AttentionState&, std::span<const float>, View<T, 3>,              \
                          View<float, 2>);                                                        \
  template void attention_delta<T>(View<const T, 3>, View<const T, 3>, View<float, 2>);
ODYSSEY_INSTANTIATE(float)
ODYSSEY_INSTANTIATE(bf16)
#undef ODYSSEY_INSTANTIATE

}  // namespace odyssey
