// SPDX-License-Identifier: Apache-2.0
// HeadMap: which heads a Ulysses rank works on. Any H, K and U fit: query heads are cut into U
// neighbouring parts as even as possible, and a key/value head goes to every rank that owns one of
// its query heads. Where several ranks share a KV head, its gradients are summed when they come
// home.
#pragma once
#include <algorithm>
#include <cstdint>

#include "odyssey/base/error.h"
#include "odyssey/sequence/placement.h"

namespace odyssey {

class HeadMap {
 public:
  // H a multiple of K.
  HeadMap(int64_t query_heads, int64_t kv_heads, int ulysses_size)
      : query_heads_(query_heads), kv_heads_(kv_heads), ulysses_size_(ulysses_size) {
    ODYSSEY_CHECK(kv_heads > 0 && query_heads % kv_heads == 0, "H={} K={}", query_heads, kv_heads);
  }
  int64_t query_heads() const { return query_heads_; }
  int64_t kv_heads() const { return kv_heads_; }
  int ulysses_size() const { return ulysses_size_; }
  int64_t queries_per_kv() const { return query_heads_ / kv_heads_; }

  int64_t query_begin(int u) const { return part_begin(query_heads_, ulysses_size_, u); }
  int64_t query_count(int u) const { return part_size(query_heads_, ulysses_size_, u); }
  int64_t kv_begin(int u) const { return query_begin(u) / queries_per_kv(); }
  int64_t kv_count(int u) const {
    if (query_count(u) == 0) return 0;
    return (query_begin(u) + query_count(u) - 1) / queries_per_kv() + 1 - kv_begin(u);
  }
  // Heads of the rank that has most over the mean: 1 is even.
  double query_imbalance() const {
    return static_cast<double>(query_count(0)) * ulysses_size_ / static_cast<double>(query_heads_);
  }
  // The same of key/value heads. Copies count: 8 / 1 heads on 8 ranks are even, though each rank
  // works with a copy.
  double kv_imbalance() const {
    int64_t most = 0, all = 0;
    for (int u = 0; u < ulysses_size_; ++u) {
      most = std::max(most, kv_count(u));
      all += kv_count(u);
    }
    return static_cast<double>(most) * ulysses_size_ / static_cast<double>(all);
  }
  // Index of the first owned query head within its group (AttentionOptions::phase).
  int64_t phase(int u) const { return query_begin(u) % queries_per_kv(); }

 private:
  int64_t query_heads_, kv_heads_;
  int ulysses_size_;
};

}  // namespace odyssey
