// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/attention_simd.h"

#include <algorithm>
#include <atomic>
#include <type_traits>
#include <utility>

#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/attention_tile.h"
#include "odyssey/kernels/isa.h"
#include "odyssey/kernels/scratch.h"
#include "odyssey/kernels/turns.h"

namespace odyssey::simd {
namespace {

const AttentionTileKernels& tile_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return kAttentionTilesAvx512;
  if (isa == Isa::kAvx2) return kAttentionTilesAvx2;
#endif
  (void)isa;
  return kAttentionTilesPortable;
}

int64_t tiles_of(int64_t rows, int64_t tile) {
  return (rows + tile - 1) / tile;
}

// Memory that a rank keeps from call to call; it grows in the first step and then stays.
struct RankScratch {
  // One key/value head, key tile by key tile. Forward: K by key, V by element. Backward: K by key,
  // V by key, K by element, dK, dV.
  Scratch<float> packed;
  Scratch<int32_t> position, segment;
  Scratch<char> finite;       // of each key tile
  Scratch<int64_t> progress;  // of each item of the backward pass
};
RankScratch& rank_scratch() {
  thread_local RankScratch scratch;
  return scratch;
}

// All key tiles of one key/value head, packed.
class PackedHead {
 public:
  PackedHead(RankScratch& scratch, const AttentionRows& rows, const AttentionTileKernels& kernels,
             const TileOptions& options, bool backward)
      : scratch_(scratch),
        kernels_(kernels),
        options_(options),
        backward_(backward),
        keys_(rows.keys()) {
    const int64_t padded_keys = tiles() * kKeyTile;
    scratch.packed.at_least(tiles() * tile_words());
    scratch.finite.at_least(tiles());
    int32_t* position = scratch.position.at_least(padded_keys);
    int32_t* segment = scratch.segment.at_least(padded_keys);
    std::copy(rows.position(), rows.position() + keys_, position);
    std::copy(rows.key_segment(), rows.key_segment() + keys_, segment);
    std::fill(position + keys_, position + padded_keys, 0);
    std::fill(segment + keys_, segment + padded_keys, 0);
  }
  int64_t tiles() const { return tiles_of(keys_, kKeyTile); }
  bool is_ragged(int64_t t) const { return (t + 1) * kKeyTile > keys_; }

  // Also sets dK and dV to 0.
  template <class T>
  void pack(View<const T, 3> k, View<const T, 3> v, int64_t g) {
    for_tiles([&](int64_t t) {
      const KeyTile key = tile(t);
      const auto pack_one = [&](View<const T, 3> from, const float* by_key,
                                const float* by_element) {
        const int64_t row = t * kKeyTile;
        return kernels_.pack(&from(row, g, 0), from.stride(0), std::min(kKeyTile, keys_ - row),
                             options_, const_cast<float*>(by_key), const_cast<float*>(by_element));
      };
      const bool k_finite = pack_one(k, key.k_by_key, key.k_by_element);
      const bool v_finite = pack_one(v, key.v_by_key, key.v_by_element);
      scratch_.finite.data()[t] = k_finite && v_finite;
      if (key.dk != nullptr) std::fill_n(key.dk, 2 * block_words(), 0.0f);
    });
  }
  void add_gradients(View<float, 3> dk, View<float, 3> dv, int64_t g) const {
    for_tiles([&](int64_t t) {
      const KeyTile key = tile(t);
      const int64_t first = t * kKeyTile, rows = std::min(kKeyTile, keys_ - first);
      for (int64_t j = 0; j < rows; ++j) {
        for (int64_t d = 0; d < options_.head_size; ++d) {
          dk(first + j, g, d) += key.dk[j * options_.padded + d];
          dv(first + j, g, d) += key.dv[j * options_.padded + d];
        }
      }
    });
  }
  KeyTile tile(int64_t t) const {
    float* block = scratch_.packed.data() + t * tile_words();
    const auto next = [&] { return std::exchange(block, block + block_words()); };
    KeyTile key{};
    key.k_by_key = next();
    (backward_ ? key.v_by_key : key.v_by_element) = next();
    if (backward_) {
      key.k_by_element = next();
      key.dk = next();
      key.dv = next();
    }
    key.position = scratch_.position.data() + t * kKeyTile;
    key.segment = scratch_.segment.data() + t * kKeyTile;
    key.finite = scratch_.finite.data()[t] != 0;
    return key;
  }
  // Part i of n of what the kernels read of tile t, nothing behind the last tile.
  Ahead ahead(int64_t t, int64_t i, int64_t n) const {
    if (t >= tiles()) return {scratch_.packed.data(), 0};
    const int64_t lines = tile_words() / kStrip;
    const int64_t begin = lines * i / n, end = lines * (i + 1) / n;
    return {scratch_.packed.data() + t * tile_words() + begin * kStrip, end - begin};
  }

 private:
  int64_t block_words() const { return kKeyTile * options_.padded; }
  int64_t tile_words() const { return (backward_ ? 5 : 2) * block_words(); }
  template <class Body>
  void for_tiles(const Body& body) const {
    parallel_ranges(tiles(), 4, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) body(t);
    });
  }

  RankScratch& scratch_;
  const AttentionTileKernels& kernels_;
  const TileOptions& options_;
  bool backward_;
  int64_t keys_;
};

// Query tiles of one item: keys that come from memory serve all of them while they are in L2.
constexpr int64_t kMostTiles = 4;

// All (query tile, head) of one key/value head in the order of their work, cut into items. Late
// query tiles come first: under a causal mask they see the most keys, and the longest items should
// start first. Heads of one query tile stand together, since they see the same keys.
struct HeadPlan {
  int64_t first_head, heads, query_tiles;

  HeadPlan(int64_t g, int64_t queries, int64_t all_heads, const AttentionOptions& options)
      : first_head(options.first_query_head(g, all_heads)),
        heads(options.first_query_head(g + 1, all_heads) - first_head),
        query_tiles(tiles_of(queries, kQueryTile)) {}

  int64_t count() const { return heads * query_tiles; }
  // Some items for each thread. No result depends on it: sums are taken tile by tile.
  int64_t tiles_an_item() const {
    return std::clamp<int64_t>(count() / (4 * thread_count()), 1, kMostTiles);
  }
  int64_t items() const { return tiles_of(count(), tiles_an_item()); }
  int64_t head(int64_t i) const { return first_head + i % heads; }
  int64_t query_tile(int64_t i) const { return query_tiles - 1 - i / heads; }
};

// The query tiles of one item that see any key, and the scratch of each.
class Item {
 public:
  // fill(tile, head, first row) adds what forward and backward do not share.
  template <class T, class Fill>
  Item(View<const T, 3> q, const AttentionRows& rows, const PackedHead& head, const HeadPlan& plan,
       int64_t item, float* words, int64_t tile_words, const Fill& fill)
      : rows_(rows), head_(head), words_(words), tile_words_(tile_words) {
    const int64_t begin = item * plan.tiles_an_item();
    const int64_t end = std::min(begin + plan.tiles_an_item(), plan.count());
    for (int64_t i = begin; i < end; ++i) {
      const int64_t qt = plan.query_tile(i), h = plan.head(i), first = qt * kQueryTile;
      if (!sees_anything(qt)) continue;
      query_tile_[count_] = qt;
      QueryTile& tile = tiles_[count_++];
      tile = {};
      tile.q = &q(first, h, 0);
      tile.q_stride = q.stride(0);
      tile.rows = std::min(kQueryTile, q.extent(0) - first);
      tile.least = rows.least() + first;
      tile.most = rows.most() + first;
      tile.segment = rows.query_segment() + first;
      fill(tile, h, first);
    }
  }
  // Calls body(query tile, its scratch).
  template <class Body>
  void for_tiles(const Body& body) const {
    for (int64_t i = 0; i < count_; ++i) body(tiles_[i], words_ + i * tile_words_);
  }
  // The first key tile from kt on that any of them sees, or the number of key tiles.
  int64_t next_seen(int64_t kt) const {
    while (kt < head_.tiles() && pairs(kt) == 0) ++kt;
    return kt;
  }
  // Calls body(partial, what to fetch ahead, scratch) for the query tiles that see key tile kt.
  template <class Body>
  void for_pairs(int64_t kt, const Body& body) const {
    const int64_t next = next_seen(kt + 1), count = pairs(kt);
    int64_t done = 0;
    for (int64_t i = 0; i < count_; ++i) {
      const Visibility seen = rows_.tile(query_tile_[i], kt);
      if (seen == Visibility::kHidden) continue;
      const bool ragged = tiles_[i].rows < kQueryTile || head_.is_ragged(kt);
      body(ragged || seen == Visibility::kPartial, head_.ahead(next, done++, count),
           words_ + i * tile_words_);
    }
  }

 private:
  int64_t pairs(int64_t kt) const {
    int64_t count = 0;
    for (int64_t i = 0; i < count_; ++i) {
      count += rows_.tile(query_tile_[i], kt) != Visibility::kHidden;
    }
    return count;
  }
  bool sees_anything(int64_t qt) const {
    for (int64_t t = 0; t < head_.tiles(); ++t) {
      if (rows_.tile(qt, t) != Visibility::kHidden) return true;
    }
    return false;
  }

  const AttentionRows& rows_;
  const PackedHead& head_;
  float* words_;
  int64_t tile_words_, count_ = 0;
  QueryTile tiles_[kMostTiles];
  int64_t query_tile_[kMostTiles];
};

float* thread_scratch(int64_t words) {
  thread_local Scratch<float> scratch;
  return scratch.at_least(words);
}

template <class T>
TileOptions tile_options_of(int64_t head_size, const AttentionOptions& options) {
  return {head_size, padded_head_size(head_size), options.scale, options.soft_cap,
          std::is_same_v<T, bf16>};
}

}  // namespace

template <class T>
void attend(View<const T, 3> q, View<const T, 3> k, View<const T, 3> v, const AttentionRows& rows,
            const AttentionOptions& options, const AttentionState& state, const Poll& poll) {
  const AttentionTileKernels& kernels = tile_kernels(isa_in_use());
  RankScratch& scratch = rank_scratch();
  const TileOptions tile_options = tile_options_of<T>(q.extent(2), options);
  PackedHead head(scratch, rows, kernels, tile_options, /*backward=*/false);
  const int64_t tile_words = kernels.forward_words(tile_options.padded);
  const int64_t shared_words = kernels.shared_words();
  for (int64_t g = 0; g < k.extent(1); ++g) {
    const HeadPlan plan(g, q.extent(0), q.extent(1), options);
    if (plan.heads == 0) continue;
    head.pack(k, v, g);
    parallel_for(plan.items(), [&](int64_t index) {
      float* shared = thread_scratch(shared_words + kMostTiles * tile_words);
      const auto fill = [&](QueryTile& tile, int64_t h, int64_t row) {
        tile.max = &state.max(h, row);
        tile.sum = &state.sum(h, row);
        tile.accumulator = &state.accumulator(row, h, 0);
        tile.accumulator_stride = state.accumulator.stride(0);
      };
      const Item item(q, rows, head, plan, index, shared + shared_words, tile_words, fill);
      item.for_tiles(
          [&](const QueryTile& tile, float* words) { kernels.load(tile, tile_options, words); });
      for (int64_t kt = item.next_seen(0); kt < head.tiles(); kt = item.next_seen(kt + 1)) {
        item.for_pairs(kt, [&, key = head.tile(kt)](bool partial, Ahead ahead, float* words) {
          kernels.forward(key, partial, tile_options, ahead, words, shared);
        });
        if (is_calling_thread()) poll();
      }
      item.for_tiles(
          [&](const QueryTile& tile, float* words) { kernels.store(tile, tile_options, words); });
    });
  }
}

template <class T>
void attend_backward(View<const T, 3> q, View<const T, 3> k, View<const T, 3> v,
                     View<const T, 3> dout, View<const float, 2> lse, View<const float, 2> delta,
                     const AttentionRows& rows, const AttentionOptions& options, View<float, 3> dq,
                     View<float, 3> dk, View<float, 3> dv, const Poll& poll) {
  const AttentionTileKernels& kernels = tile_kernels(isa_in_use());
  RankScratch& scratch = rank_scratch();
  const TileOptions tile_options = tile_options_of<T>(q.extent(2), options);
  PackedHead head(scratch, rows, kernels, tile_options, /*backward=*/true);
  const int64_t tile_words = kernels.backward_words(tile_options.padded);
  const int64_t shared_words = kernels.shared_words();
  for (int64_t g = 0; g < k.extent(1); ++g) {
    const HeadPlan plan(g, q.extent(0), q.extent(1), options);
    if (plan.heads == 0) continue;
    head.pack(k, v, g);
    const int64_t items = plan.items();
    int64_t* progress = scratch.progress.at_least(items);
    std::fill_n(progress, items, 0);
    const auto run = [&](int64_t index) {
      float* shared = thread_scratch(shared_words + kMostTiles * tile_words);
      const auto fill = [&](QueryTile& tile, int64_t h, int64_t row) {
        tile.dout = &dout(row, h, 0);
        tile.dout_stride = dout.stride(0);
        tile.max = const_cast<float*>(&lse(h, row));
        tile.sum = const_cast<float*>(&delta(h, row));
        tile.accumulator = &dq(row, h, 0);
        tile.accumulator_stride = dq.stride(0);
      };
      const Item item(q, rows, head, plan, index, shared + shared_words, tile_words, fill);
      item.for_tiles([&](const QueryTile& tile, float* words) {
        kernels.load_backward(tile, tile_options, words);
      });
      // dK and dV of a key tile are added to by one item after the other.
      Turns turns(progress, index);
      for (int64_t kt = item.next_seen(0); kt < head.tiles(); kt = item.next_seen(kt + 1)) {
        turns.wait(kt);
        item.for_pairs(kt, [&, key = head.tile(kt)](bool partial, Ahead ahead, float* words) {
          kernels.backward(key, partial, tile_options, ahead, words, shared);
        });
        turns.done(kt);
        if (is_calling_thread()) poll();
      }
      turns.finish();
      item.for_tiles([&](const QueryTile& tile, float* words) {
        kernels.store_backward(tile, tile_options, words);
      });
    };
    // Not a parallel_for over the items: they must start in ascending order.
    std::atomic<int64_t> next{0};
    parallel_for(thread_count(), [&](int64_t) {
      for (int64_t index; (index = next++) < items;) run(index);
    });
    head.add_gradients(dk, dv, g);
  }
}

int64_t scratch_bytes(int64_t forward_keys, int64_t backward_keys, int64_t head_size) {
  const AttentionTileKernels& kernels = tile_kernels(isa_in_use());
  const int64_t padded = padded_head_size(head_size);
  const auto padded_keys = [](int64_t keys) { return tiles_of(keys, kKeyTile) * kKeyTile; };
  const int64_t forward = padded_keys(forward_keys), backward = padded_keys(backward_keys);
  const int64_t thread_words =
      kernels.shared_words() +
      kMostTiles * std::max(kernels.forward_words(padded), kernels.backward_words(padded));
  // Packed of one head, K and V or K twice, V, dK, dV; positions and segments; the query tiles of
  // each thread.
  const int64_t packed = std::max(2 * forward, 5 * backward) * padded;
  return (packed + 7 * std::max(forward, backward) + thread_count() * thread_words) * 4;
}

#define ODYSSEY_INSTANTIATE(T)                                                                    \
  template void attend<T>(View<const T, 3>, View<const T, 3>, View<const T, 3>,                   \
                          const AttentionRows&, const AttentionOptions&, const AttentionState&,   \
                          const Poll&);                                                           \
  template void attend_backward<T>(View<const T, 3>, View<const T, 3>, View<const T, 3>,          \
                                   View<const T, 3>, View<const float, 2>, View<const float, 2>,  \
                                   const AttentionRows&, const AttentionOptions&, View<float, 3>, \
                                   View<float, 3>, View<float, 3>, const Poll&);
ODYSSEY_INSTANTIATE(float)
ODYSSEY_INSTANTIATE(bf16)
#undef ODYSSEY_INSTANTIATE

}  // namespace odyssey::simd
