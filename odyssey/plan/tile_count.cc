// SPDX-License-Identifier: Apache-2.0
// Two ideas make it fast. Within a pair of rows the tiles that are hidden form two corners, counted
// per row of tiles. And over all pairs of ranks the count is the same in large rectangles (all
// blocks far below the diagonal of a causal mask, say), which are found by halving and never
// walked.
#include "odyssey/plan/tile_count.h"

#include <algorithm>

#include "odyssey/base/error.h"

namespace odyssey {
namespace {

// Tiles of one rank whose bounds are `first`, then each `step` further on.
struct TileGroup {
  Bounds first;
  int64_t step = 0;
  int64_t count = 0;
  int64_t rows = 0;  // of one tile
  Bounds at(int64_t tile) const { return {first.least + tile * step, first.most + tile * step}; }
};

using Groups = std::vector<TileGroup>;

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Cuts rows into tiles of `size`, in storage order. A tile over the joint of two runs, or a short
// last one, is a group of its own.
Groups tile_groups(std::span<const Run> runs, int64_t size) {
  Groups groups;
  TileGroup open;  // a tile that is not full yet
  int64_t open_rows = 0;
  for (const Run& run : runs) {
    int64_t done = 0;
    const auto bounds = [&](int64_t rows) {
      const int64_t begin = run.first + done * run.stride;
      return Bounds{begin, begin + (rows - 1) * run.stride};
    };
    if (open_rows > 0) {
      const int64_t rows = std::min(size - open_rows, run.count);
      const Bounds more = bounds(rows);
      open.first = {std::min(open.first.least, more.least), std::max(open.first.most, more.most)};
      open_rows += rows;
      done += rows;
      if (open_rows < size) continue;
      open.rows = size;
      groups.push_back(open);
      open_rows = 0;
    }
    if (const int64_t whole = (run.count - done) / size; whole > 0) {
      groups.push_back({bounds(size), size * run.stride, whole, size});
      done += whole * size;
    }
    if (done < run.count) {
      open = {bounds(run.count - done), 0, 1, 0};
      open_rows = run.count - done;
    }
  }
  if (open_rows > 0) {
    open.rows = open_rows;
    groups.push_back(open);
  }
  return groups;
}

int64_t tiles_of(const Groups& groups) {
  int64_t tiles = 0;
  for (const TileGroup& group : groups) tiles += group.count;
  return tiles;
}

struct Mask {
  MaskKind kind;
  int64_t window;
};

// Tiles that are hidden because all their keys lie behind what the queries see, and before it. Both
// grow with the distance of queries and keys in one direction, and no tile is counted twice.
struct Hidden {
  int64_t behind = 0, before = 0;
  bool operator==(const Hidden&) const = default;
};

Hidden count_hidden(const Mask& mask, const TileGroup& queries, const TileGroup& keys) {
  Hidden hidden;
  for (int64_t i = 0; i < queries.count; ++i) {
    const Bounds rows = queries.at(i);
    const int64_t last = visible_keys(mask.kind, mask.window, rows.most).most;
    const int64_t first = visible_keys(mask.kind, mask.window, rows.least).least;
    // Keys behind: least > last. Keys before: most < first. Tiles stand in order of position.
    const int64_t reach = last - keys.first.least;  // tiles with j * step <= reach begin in sight
    const int64_t short_of =
        first - keys.first.most;  // those with j * step < short_of end too soon
    int64_t begin_in_sight = 0, end_too_soon = 0;
    if (reach >= 0) {
      begin_in_sight = keys.step == 0 ? keys.count : std::min(keys.count, reach / keys.step + 1);
    }
    if (short_of > 0) {
      end_too_soon =
          keys.step == 0 ? keys.count : std::min(keys.count, ceil_div(short_of, keys.step));
    }
    hidden.behind += keys.count - begin_in_sight;
    hidden.before += end_too_soon;
  }
  return hidden;
}

// Several ranks [begin, end), of queries or of keys.
struct Range {
  int begin, end;
  int count() const { return end - begin; }
  Range first_half() const { return {begin, begin + count() / 2}; }
  Range second_half() const { return {begin + count() / 2, end}; }
};

// Walks the square of (query rank, key block) pairs and reports rectangles of equal count.
class PairWalk {
 public:
  PairWalk(const Mask& mask, std::vector<Groups> queries, std::vector<Groups> keys)
      : mask_(mask), queries_(std::move(queries)), keys_(std::move(keys)) {}

  template <class Report>
  void run(const Report& report) const {
    walk({0, static_cast<int>(queries_.size())}, {0, static_cast<int>(keys_.size())}, report);
  }

 private:
  template <class Report>
  void walk(Range q, Range k, const Report& report) const {
    int64_t active = 0;
    if (is_constant(q, k, active)) {
      report(q, k, active);
    } else if (q.count() >= k.count()) {
      walk(q.first_half(), k, report);
      walk(q.second_half(), k, report);
    } else {
      walk(q, k.first_half(), report);
      walk(q, k.second_half(), report);
    }
  }

  // The g-th tiles of neighbouring ranks have one shape and move in one direction with the rank, so
  // the two ends of a range hold its extremes.
  static bool have_one_shape(const Groups& a, const Groups& b) {
    if (a.size() != b.size()) return false;
    for (size_t g = 0; g < a.size(); ++g) {
      const bool same =
          a[g].count == b[g].count && a[g].step == b[g].step && a[g].rows == b[g].rows;
      if (!same) return false;
    }
    return true;
  }

  // Writes the count where it is the same for all pairs of the rectangle.
  bool is_constant(Range q, Range k, int64_t& active) const {
    const Groups &q0 = queries_[q.begin], &q1 = queries_[q.end - 1];
    const Groups &k0 = keys_[k.begin], &k1 = keys_[k.end - 1];
    if (!have_one_shape(q0, q1) || !have_one_shape(k0, k1)) return false;
    const bool single = q.count() == 1 && k.count() == 1;
    active = tiles_of(q0) * tiles_of(k0);
    for (size_t i = 0; i < q0.size(); ++i) {
      for (size_t j = 0; j < k0.size(); ++j) {
        const TileGroup low_q = low(q0[i], q1[i]), high_q = high(q0[i], q1[i]);
        const TileGroup low_k = low(k0[j], k1[j]), high_k = high(k0[j], k1[j]);
        const Hidden one = count_hidden(mask_, low_q, high_k);
        if (!single && !(one == count_hidden(mask_, high_q, low_k))) return false;
        active -= one.behind + one.before;
      }
    }
    return true;
  }
  // The group with the least of both bounds, and the one with the most.
  static TileGroup low(const TileGroup& a, const TileGroup& b) {
    return {{std::min(a.first.least, b.first.least), std::min(a.first.most, b.first.most)},
            a.step,
            a.count,
            a.rows};
  }
  static TileGroup high(const TileGroup& a, const TileGroup& b) {
    return {{std::max(a.first.least, b.first.least), std::max(a.first.most, b.first.most)},
            a.step,
            a.count,
            a.rows};
  }

  Mask mask_;
  std::vector<Groups> queries_, keys_;
};

std::vector<Groups> groups_of_ranks(const Placement& placement, int64_t size) {
  std::vector<Groups> groups;
  for (int r = 0; r < placement.ring_size(); ++r) {
    groups.push_back(tile_groups(placement.ring_block(r), size));
  }
  return groups;
}

int64_t most_tiles(const std::vector<Groups>& ranks) {
  int64_t most = 0;
  for (const Groups& groups : ranks) most = std::max(most, tiles_of(groups));
  return most;
}

int64_t clamped(int64_t tile, int64_t rows) {
  return std::max<int64_t>(1, std::min(tile, rows));
}

}  // namespace

int64_t TileCounts::sum_of_most() const {
  int64_t sum = 0;
  for (const int64_t step : most) sum += step;
  return sum;
}

TileCounts count_ring_tiles(const Placement& placement, MaskKind kind, int64_t window,
                            TileSize tile) {
  const int ring = placement.ring_size();
  const int64_t rows = placement.most_ring_block_rows();
  TileCounts counts;
  counts.tile = {clamped(tile.queries, rows), clamped(tile.keys, rows)};
  std::vector<Groups> queries = groups_of_ranks(placement, counts.tile.queries);
  std::vector<Groups> keys = groups_of_ranks(placement, counts.tile.keys);
  counts.query_tiles = most_tiles(queries);
  counts.key_tiles = most_tiles(keys);
  counts.most.assign(ring, 0);
  std::vector<int64_t> of_rank(ring, 0);
  PairWalk({kind, window}, std::move(queries), std::move(keys))
      .run([&](Range q, Range k, int64_t active) {
        if (active == 0) return;
        // The diagonals that cross the rectangle: rank q works on block k at step q - k.
        for (int distance = q.begin - k.end + 1; distance < q.end - k.begin; ++distance) {
          int64_t& most = counts.most[(distance + ring) % ring];
          most = std::max(most, active);
        }
        for (int r = q.begin; r < q.end; ++r) of_rank[r] += active * k.count();
      });
  for (const int64_t tiles : of_rank) {
    counts.most_of_rank = std::max(counts.most_of_rank, tiles);
    counts.total += tiles;
  }
  return counts;
}

TileCounts count_gathered_tiles(const Placement& placement, MaskKind kind, int64_t window,
                                TileSize tile) {
  const int64_t length = placement.sequence_length();
  TileCounts counts;
  counts.tile = {clamped(tile.queries, placement.most_ring_block_rows()),
                 clamped(tile.keys, length)};
  std::vector<Groups> queries = groups_of_ranks(placement, counts.tile.queries);
  const std::vector<Run> natural = {{0, length, 1}};
  std::vector<Groups> keys = {tile_groups(natural, counts.tile.keys)};
  counts.query_tiles = most_tiles(queries);
  counts.key_tiles = most_tiles(keys);
  PairWalk({kind, window}, std::move(queries), std::move(keys))
      .run([&](Range q, Range, int64_t active) {
        counts.most_of_rank = std::max(counts.most_of_rank, active);
        counts.total += active * q.count();
      });
  counts.most = {counts.most_of_rank};
  return counts;
}

int64_t count_pair_tiles(const Placement& placement, MaskKind kind, int64_t window, TileSize tile,
                         int r, int block) {
  const std::vector<Run> keys = block == kAllKeys
                                    ? std::vector<Run>{{0, placement.sequence_length(), 1}}
                                    : placement.ring_block(block);
  int64_t tiles = 0;
  PairWalk({kind, window}, {tile_groups(placement.ring_block(r), tile.queries)},
           {tile_groups(keys, tile.keys)})
      .run([&](Range, Range, int64_t active) { tiles += active; });
  return tiles;
}

namespace {

// Sum of floor((first + i * stride) / m) for i in [0, n): Euclid's algorithm on the lattice points
// below a line. All numbers at least 0.
int64_t floor_sum(int64_t n, int64_t m, int64_t stride, int64_t first) {
  int64_t sum = 0;
  while (n > 0) {
    sum += (stride / m) * (n * (n - 1) / 2) + (first / m) * n;
    stride %= m;
    first %= m;
    const int64_t top = stride * n + first;
    if (top < m) break;
    n = top / m;
    first = top % m;
    std::swap(m, stride);
  }
  return sum;
}

// Sum over the queries of a run of the keys each sees in a row of `length`.
int64_t pairs_of_run(const Mask& mask, const Run& run, int64_t length) {
  const auto sum_of = [&](int64_t value, int64_t n) {  // value, value + stride, ...
    return n * value + run.stride * (n * (n - 1) / 2);
  };
  switch (mask.kind) {
    case MaskKind::kFull:
      return run.count * length;
    case MaskKind::kCausal:
      return sum_of(run.first + 1, run.count);
    case MaskKind::kLocalSliding: {
      // Queries before position `window` see all keys up to their own.
      const int64_t growing = std::clamp<int64_t>(
          ceil_div(std::max<int64_t>(0, mask.window - run.first), run.stride), 0, run.count);
      return sum_of(run.first + 1, growing) + (run.count - growing) * mask.window;
    }
    case MaskKind::kChunk:
      return sum_of(run.first + 1, run.count) -
             mask.window * floor_sum(run.count, mask.window, run.stride, run.first);
  }
  return 0;
}

}  // namespace

int64_t visible_pairs(const Placement& placement, MaskKind kind, int64_t window, int r) {
  int64_t pairs = 0;
  for (const Run& run : placement.ring_block(r)) {
    pairs += pairs_of_run({kind, window}, run, placement.sequence_length());
  }
  return pairs;
}

}  // namespace odyssey
