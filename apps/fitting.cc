// SPDX-License-Identifier: Apache-2.0
#include "apps/fitting.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "odyssey/base/error.h"
#include "odyssey/config/model_presets.h"
#include "odyssey/config/run_config.h"
#include "odyssey/train/memory.h"

namespace odyssey {
namespace {

constexpr int64_t kShortest = 2048;  // shorter rows are no long contexts any more

using Words = std::vector<std::string>;

// Replaces what the words say about a key.
void set_key(Words& words, const std::string& key, const std::string& value) {
  std::erase_if(words, [&](const std::string& word) { return word.starts_with(key + "="); });
  words.push_back(key + "=" + value);
}

// The models that could stand in for this one, largest first.
Words smaller_models(const std::string& yml, const Words& words, int64_t parameters) {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const std::string& name : model_names()) {
    Words changed = words;
    set_key(changed, "model_name", name);
    try {
      const int64_t count = parameter_count(make_run_config(yml, changed, 0).model);
      if (count < parameters) found.emplace_back(-count, name);
    } catch (const UserError&) {
      // Other keys of the run do not go with that model.
    }
  }
  std::sort(found.begin(), found.end());
  Words names;
  for (const auto& [count, name] : found) names.push_back(name);
  return names;
}

class Search {
 public:
  Search(const std::string& yml, Words words, int ring, int ulysses, int64_t bytes)
      : yml_(yml), words_(std::move(words)), ring_(ring), ulysses_(ulysses), bytes_(bytes) {}

  std::string run() const {
    const RunConfig config = make_run_config(yml_, words_, 0);
    Words models = smaller_models(yml_, words_, parameter_count(config.model));
    models.insert(models.begin(), "");
    for (const std::string& model : models) {
      int ring = ring_, ulysses = ulysses_;
      while (true) {
        for (int64_t length = config.data.sequence_length; length >= kShortest; length /= 2) {
          const Words change = changes(config, model, ring, ulysses, length);
          if (fits(change)) return fmt::format("{}", fmt::join(change, " "));
        }
        if (ring == 1 && ulysses == 1) break;
        // The ring crosses machines, so it is the first to shrink on one.
        (ring > 1 ? ring : ulysses) /= 2;
      }
    }
    return {};
  }

 private:
  Words changes(const RunConfig& config, const std::string& model, int ring, int ulysses,
                int64_t length) const {
    Words change;
    if (!model.empty()) change.push_back("model_name=" + model);
    if (ring != ring_ || ulysses != ulysses_) {
      const bool usp = config.parallel.strategy == Strategy::kUsp;
      change.push_back(fmt::format("ici_context_parallelism={}", usp ? ring : ring * ulysses));
      if (usp) change.push_back(fmt::format("ici_context_usp_ulysses_parallelism={}", ulysses));
      // One machine: nodes count as ranks.
      if (config.parallel.ring_nodes != 1 || (config.parallel.ulysses_nodes != 1 && !usp)) {
        change.emplace_back("dcn_context_parallelism=1");
      }
      if (config.parallel.ulysses_nodes != 1 && usp) {
        change.emplace_back("dcn_context_usp_ulysses_parallelism=1");
      }
      // One row on each batch slice.
      change.push_back(fmt::format("per_device_batch_size={}", 1.0 / (ring * ulysses)));
    }
    if (length != config.data.sequence_length) {
      change.push_back(fmt::format("max_target_length={}", length));
    }
    return change;
  }

  bool fits(const Words& change) const {
    Words words = words_;
    for (const std::string& word : change) {
      const size_t equals = word.find('=');
      if (word.starts_with("ici_context_usp")) {
        std::erase_if(words, [](const std::string& w) {
          return w.starts_with("ici_context_ulysses_parallelism=");  // the other spelling
        });
      }
      set_key(words, word.substr(0, equals), word.substr(equals + 1));
    }
    try {
      const RunConfig config = make_run_config(yml_, words, 0);
      return memory_need(config).of_rank() * config.parallel.ranks() <= bytes_;
    } catch (const UserError&) {
      return false;
    }
  }

  std::string yml_;
  Words words_;
  int ring_, ulysses_;
  int64_t bytes_;
};

}  // namespace

std::string keys_that_fit(const std::string& yml, std::span<const std::string> key_values, int ring,
                          int ulysses, int64_t bytes) {
  try {
    return Search(yml, Words(key_values.begin(), key_values.end()), ring, ulysses, bytes).run();
  } catch (const UserError&) {
    return {};
  }
}

}  // namespace odyssey
