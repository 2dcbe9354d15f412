// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_attention_rows.h"

#include <algorithm>

#include <fmt/format.h>

#include "apps/describe.h"
#include "odyssey/base/error.h"
#include "odyssey/train/memory.h"

namespace odyssey {
namespace {

// The keys that change an attention call, with what they are here where they are not given.
struct ShapeKey {
  const char *name, *value;
};
constexpr ShapeKey kShapeKeys[] = {{"base_num_query_heads", "32"},
                                   {"base_num_kv_heads", "8"},
                                   {"head_dim", "128"},
                                   {"dtype", "bfloat16"},
                                   {"attention_type", nullptr},
                                   {"sliding_window_size", nullptr},
                                   {"chunk_attn_window_size", nullptr},
                                   {"attn_logits_soft_cap", nullptr},
                                   {"attention_scale", nullptr},
                                   {"comm_timeout_seconds", nullptr}};

bool sets(const std::vector<std::string>& words, const std::string& key) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return word.starts_with(key + "="); });
}

std::vector<std::string> shape_keys() {
  std::vector<std::string> names;
  for (const ShapeKey& key : kShapeKeys) names.emplace_back(key.name);
  return names;
}

std::vector<int> ranks_of(const BenchAttentionCommand& command, int64_t processes) {
  constexpr int kDefaultThreadRanks = 8;
  if (command.ranks.empty()) {
    return {processes == 0 ? kDefaultThreadRanks : static_cast<int>(processes)};
  }
  for (const int ranks : command.ranks) {
    if (processes > 0 && ranks > processes) {
      throw user_error("--ranks", fmt::format("at most the {} processes started", processes),
                       fmt::format("{}", ranks), "Start more processes, or take fewer ranks.");
    }
  }
  return command.ranks;
}

}  // namespace

std::vector<BenchAttentionRow> bench_attention_rows(const BenchAttentionCommand& command,
                                                    int64_t processes) {
  const std::vector<int> ranks = ranks_of(command, processes);
  refuse_layout_keys(command.key_values, "attention", {});
  refuse_other_keys(command.key_values, shape_keys(), "Other keys change no attention call.");
  std::vector<std::string> shape = command.key_values;
  for (const ShapeKey& key : kShapeKeys) {
    if (key.value != nullptr && !sets(shape, key.name)) {
      shape.push_back(fmt::format("{}={}", key.name, key.value));
    }
  }
  std::vector<BenchAttentionRow> rows;
  const auto add = [&](const BenchLayout& layout, int64_t length, bool dense) {
    std::vector<std::string> words = shape;
    for (const std::string& word : words_of(layout)) words.push_back(word);
    words.push_back(fmt::format("max_target_length={}", length));
    BenchAttentionRow row;
    row.config = make_run_config("", words, int64_t{layout.ring} * layout.ulysses);
    row.dense = dense;
    row.length = length;
    if (command.documents > length) {
      throw user_error("--documents", fmt::format("at most S={}", length),
                       fmt::format("{}", command.documents), "A document has at least one token.");
    }
    row.segments = random_documents(length, command.documents);
    rows.push_back(std::move(row));
    return rows.back().config.model.masks.front().kind;
  };
  bool has_layouts = false;
  for (const int64_t length : command.lengths) {
    const MaskKind mask = add({}, length, /*dense=*/true);
    for (const int count : ranks) {
      // One rank is the dense row.
      if (count == 1) {
        has_layouts = true;
        continue;
      }
      for (const BenchLayout& layout : bench_layouts(count, command.choice, mask)) {
        has_layouts = true;
        add(layout, length, /*dense=*/false);
      }
    }
  }
  if (!has_layouts) refuse_no_layout(ranks, "attention");
  return rows;
}

void check_bench_memory(const std::vector<BenchAttentionRow>& rows, int ranks_here) {
  const auto largest = std::max_element(
      rows.begin(), rows.end(), [&](const BenchAttentionRow& a, const BenchAttentionRow& b) {
        return a.bytes_needed(ranks_here) < b.bytes_needed(ranks_here);
      });
  const int64_t available = available_memory();
  if (largest->bytes_needed(ranks_here) <= available) return;
  throw user_error(
      "memory of the largest row",
      fmt::format("at most the {} that are free on this machine", readable_bytes(available)),
      fmt::format("{} ({}, S {})", readable_bytes(largest->bytes_needed(ranks_here)),
                  describe(largest->config.parallel), largest->length),
      "Give smaller --lengths, fewer --ranks or fewer heads.");
}

// Equal on all ranks that measure the same rows.
uint64_t hash_of(const BenchAttentionCommand& command, const std::vector<BenchAttentionRow>& rows) {
  constexpr uint64_t kPrime = 0x100000001b3U;
  uint64_t hash =
      static_cast<uint64_t>(command.repeats) * kPrime + static_cast<uint64_t>(command.documents);
  for (const BenchAttentionRow& row : rows) hash = hash * kPrime + row.config.hash;
  return hash;
}

}  // namespace odyssey
