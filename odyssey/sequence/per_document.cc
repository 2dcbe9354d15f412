// SPDX-License-Identifier: Apache-2.0
#include "odyssey/sequence/per_document.h"

#include <algorithm>
#include <numeric>

#include "odyssey/base/error.h"
#include "odyssey/sequence/placement.h"

namespace odyssey {
namespace {

constexpr int64_t kShortestChunk = 64;

class Dealer {
 public:
  Dealer(std::span<const int64_t> documents, int ring_size) : ring_(ring_size), ranks_(ring_size) {
    const int64_t length = std::accumulate(documents.begin(), documents.end(), int64_t{0});
    for (int r = 0; r < ring_; ++r) ranks_[r].room = part_size(length, ring_, r);
    int64_t begin = 0;
    for (int64_t tokens : documents) {
      ODYSSEY_CHECK(tokens >= 1, "a document of {} tokens", tokens);
      const bool is_short = tokens < 2 * ring_ * kShortestChunk && 4 * ring_ * tokens <= length;
      (is_short ? short_ : long_).push_back({begin, tokens});
      begin += tokens;
    }
  }

  std::vector<std::vector<Run>> deal() {
    for (const Document& document : long_) deal_chunks(document);
    std::stable_sort(short_.begin(), short_.end(),
                     [](const Document& a, const Document& b) { return a.tokens > b.tokens; });
    for (const Document& document : short_) deal_whole(document);
    std::vector<std::vector<Run>> blocks;
    for (Rank& rank : ranks_) blocks.push_back(in_order(rank.runs));
    return blocks;
  }

 private:
  struct Document {
    int64_t begin, tokens;
  };
  struct Rank {
    std::vector<Run> runs;
    int64_t room = 0;  // tokens it may still take
    int64_t work = 0;  // causal pairs so far
  };

  // Tokens [first, first + count) of a document.
  void give(Rank& rank, const Document& document, int64_t first, int64_t count) {
    if (count == 0) return;
    rank.runs.push_back({document.begin + first, count, 1});
    rank.room -= count;
    rank.work += count * first + count * (count + 1) / 2;
  }

  // Chunks have tokens / 2R tokens. What is left over makes single chunks one token longer: it is
  // dealt to the ranks in turn, and the next document goes on where this one stopped, so that in
  // the end ranks differ by at most one token, the first being longer. A rank that gets two of them
  // lengthens both its chunks; with one, the late chunk in every other document and the early one
  // else: late tokens see more keys.
  void deal_chunks(const Document& document) {
    const int64_t chunks = 2 * ring_, base = document.tokens / chunks;
    const int64_t left = document.tokens % chunks;
    int64_t first = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const bool is_late = chunk >= ring_;
      const int64_t r = is_late ? chunks - 1 - chunk : chunk;
      const int64_t turn = (r - turn_ + ring_) % ring_;
      const int64_t got = (turn < left) + (turn + ring_ < left);
      const int64_t count = base + (got == 2 || (got == 1 && is_late == late_first_));
      give(ranks_[r], document, first, count);
      first += count;
    }
    turn_ = (turn_ + left) % ring_;
    late_first_ = !late_first_;
  }

  void deal_whole(const Document& document) {
    Rank* best = nullptr;
    for (Rank& rank : ranks_) {
      if (rank.room < document.tokens) continue;
      if (best == nullptr || rank.work < best->work) best = &rank;
    }
    if (best != nullptr) return give(*best, document, 0, document.tokens);
    for (int64_t first = 0; first < document.tokens;) {  // it fits nowhere
      Rank& roomy = *std::max_element(ranks_.begin(), ranks_.end(),
                                      [](const Rank& a, const Rank& b) { return a.room < b.room; });
      ODYSSEY_CHECK(roomy.room > 0, "{} tokens for no room", document.tokens - first);
      const int64_t count = std::min(roomy.room, document.tokens - first);
      give(roomy, document, first, count);
      first += count;
    }
  }

  // Ascending; neighbours become one run.
  static std::vector<Run> in_order(std::vector<Run>& runs) {
    std::sort(runs.begin(), runs.end(),
              [](const Run& a, const Run& b) { return a.first < b.first; });
    std::vector<Run> joined;
    for (const Run& run : runs) {
      if (!joined.empty() && joined.back().first + joined.back().count == run.first) {
        joined.back().count += run.count;
      } else {
        joined.push_back(run);
      }
    }
    return joined;
  }

  int64_t ring_;
  std::vector<Rank> ranks_;
  std::vector<Document> long_, short_;
  int64_t turn_ = 0;  // rank that the next left-over token goes to
  bool late_first_ = true;
};

}  // namespace

std::vector<std::vector<Run>> per_document_blocks(std::span<const int64_t> documents,
                                                  int ring_size) {
  return Dealer(documents, ring_size).deal();
}

}  // namespace odyssey
