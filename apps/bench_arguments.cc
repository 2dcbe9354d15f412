// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_arguments.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include <fmt/core.h>

#include "apps/bench_attention.h"
#include "apps/bench_command.h"
#include "apps/bench_plan.h"
#include "apps/bench_step.h"
#include "apps/cores.h"
#include "apps/describe.h"
#include "apps/launch.h"
#include "odyssey/base/error.h"
#include "odyssey/base/parallel_for.h"
#include "odyssey/config/spelling.h"

namespace odyssey {
namespace {

const std::vector<std::string> kKinds = {"kernel", "attention", "step", "plan"};
constexpr int64_t kMostRanks = 1024, kMostRepeats = 1000, kMostSteps = 100000;
constexpr int64_t kLongest = int64_t{1} << 31;

UserError usage_error(const std::string& what, const std::string& expected,
                      const std::string& actual, const std::string& kind) {
  return user_error(what, expected, actual,
                    fmt::format("See odyssey bench {}{}--help.", kind, kind.empty() ? "" : " "));
}

template <class Number>
std::optional<Number> read(std::string_view text) {
  Number value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || stop != text.data() + text.size()) return {};
  return value;
}

// Reads the options of one kind of benchmark.
class Reader {
 public:
  Reader(const BenchArguments& arguments, std::string kind)
      : arguments_(arguments), kind_(std::move(kind)) {}

  // `otherwise` where the option was not given.
  int64_t whole(const char* option, const std::string& text, int64_t most,
                int64_t otherwise) const {
    if (text.empty()) return otherwise;
    const std::optional<int64_t> value = read<int64_t>(text);
    if (value && *value >= 1 && *value <= most) return *value;
    throw usage_error(option, fmt::format("a whole number from 1 to {}", most), text, kind_);
  }

  // "1,2,4"; empty where the option was not given.
  std::vector<int64_t> wholes(const char* option, const std::string& text, int64_t most) const {
    std::vector<int64_t> values;
    for (const std::string& word : split(text)) {
      const std::optional<int64_t> value = read<int64_t>(word);
      if (!value || *value < 1 || *value > most) {
        throw usage_error(option,
                          fmt::format("whole numbers from 1 to {}, with commas between them", most),
                          text, kind_);
      }
      refuse_twice(option, values, *value, word);
      values.push_back(*value);
    }
    return values;
  }

  // Names of the values of an enum; all of `otherwise` where the option was not given.
  template <class Enum>
  std::vector<Enum> names(const char* option, const std::string& text, std::vector<Enum> known,
                          std::vector<Enum> otherwise) const {
    if (text.empty()) return otherwise;
    std::vector<std::string> spelled;
    spelled.reserve(known.size());
    for (const Enum value : known) spelled.emplace_back(name_of(value));
    std::vector<Enum> values;
    for (const std::string& word : split(text)) {
      const auto found = std::find(spelled.begin(), spelled.end(), word);
      if (found == spelled.end()) {
        const std::string nearest = nearest_name(word, spelled);
        throw user_error(option, join_with_or(spelled), word.empty() ? "an empty word" : word,
                         nearest.empty() ? fmt::format("See odyssey bench {} --help.", kind_)
                                         : fmt::format("Did you mean {}?", nearest));
      }
      const Enum value = known[static_cast<size_t>(found - spelled.begin())];
      refuse_twice(option, values, value, word);
      values.push_back(value);
    }
    return values;
  }

  BenchChoice choice() const {
    BenchChoice choice;
    choice.strategies =
        names("--strategies", arguments_.strategies,
              {Strategy::kAllGather, Strategy::kRing, Strategy::kUlysses, Strategy::kUsp},
              choice.strategies);
    choice.placements = names("--placements", arguments_.placements,
                              {PlacementKind::kContiguous, PlacementKind::kDualChunkSwap,
                               PlacementKind::kStriped, PlacementKind::kPerDocument},
                              choice.placements);
    return choice;
  }

  Engine engine() const {
    if (arguments_.comm.empty() || arguments_.comm == "auto") return Engine::kAuto;
    if (arguments_.comm == "threads") return Engine::kThreads;
    if (arguments_.comm == "mpi") return Engine::kMpi;
    throw usage_error("--comm", "auto, threads or mpi", arguments_.comm, kind_);
  }

 private:
  static std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> words;
    if (text.empty()) return words;
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      words.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    return words;
  }
  template <class T>
  void refuse_twice(const char* option, const std::vector<T>& values, T value,
                    const std::string& word) const {
    if (std::find(values.begin(), values.end(), value) == values.end()) return;
    throw usage_error(option, "each value once", fmt::format("{} twice", word), kind_);
  }

  const BenchArguments& arguments_;
  std::string kind_;
};

BenchOptions kernel_options(const BenchArguments& arguments, const Reader& reader) {
  BenchOptions options;
  options.threads.clear();
  for (const int64_t threads : reader.wholes("--threads", arguments.threads, CoreSet::kMostCores)) {
    options.threads.push_back(static_cast<int>(threads));
  }
  if (options.threads.empty()) options.threads = {thread_count()};
  if (!arguments.seconds.empty()) {
    const std::optional<double> seconds = read<double>(arguments.seconds);
    // Written so that "nan" is refused.
    if (!seconds || !(*seconds > 0 && *seconds <= 3600)) {
      throw usage_error("--seconds", "a number above 0, at most 3600", arguments.seconds, "kernel");
    }
    options.seconds = *seconds;
  }
  if (!arguments.clock.empty() && arguments.clock != "wall" && arguments.clock != "cpu") {
    throw usage_error("--clock", "wall or cpu", arguments.clock, "kernel");
  }
  if (arguments.clock == "cpu") {
    options.clock = Clock::kCpu;
    // The time of one thread tells nothing about its helpers.
    const int most = *std::max_element(options.threads.begin(), options.threads.end());
    if (most != 1) {
      throw usage_error("--clock", fmt::format("wall with {} threads", most), "cpu", "kernel");
    }
  }
  return options;
}

int run_kernel(const BenchArguments& arguments, const Reader& reader) {
  const BenchCommand command{{arguments.words.begin() + 1, arguments.words.end()},
                             arguments.json,
                             kernel_options(arguments, reader)};
  // It measures one process; more of them at once would disturb each other.
  return launcher_rank() == 0 ? run_bench_command(command) : kExitDone;
}

BenchAttentionCommand attention_rows(const BenchArguments& arguments, const Reader& reader,
                                     BenchAttentionCommand command) {
  if (!arguments.ranks.empty()) command.ranks.clear();
  for (const int64_t ranks : reader.wholes("--ranks", arguments.ranks, kMostRanks)) {
    command.ranks.push_back(static_cast<int>(ranks));
  }
  if (!arguments.lengths.empty()) {
    command.lengths = reader.wholes("--lengths", arguments.lengths, kLongest);
  }
  command.choice = reader.choice();
  command.documents = reader.whole("--documents", arguments.documents, kLongest, command.documents);
  command.repeats =
      static_cast<int>(reader.whole("--repeats", arguments.repeats, kMostRepeats, command.repeats));
  const bool per_document =
      std::ranges::count(command.choice.placements, PlacementKind::kPerDocument) > 0;
  if (per_document && command.documents == 1) {
    throw usage_error("--placements", "per_document only with --documents above 1",
                      arguments.placements, arguments.words[0]);
  }
  command.json = arguments.json;
  return command;
}

int run_attention(const BenchArguments& arguments, const Reader& reader) {
  BenchAttentionCommand command = attention_rows(arguments, reader, {});
  command.key_values.assign(arguments.words.begin() + 1, arguments.words.end());
  return run_bench_attention(command, reader.engine());
}

// Twenty-four layouts and more, small enough for a minute.
int run_plan(const BenchArguments& arguments, const Reader& reader) {
  const std::vector<std::string>& words = arguments.words;
  if (words.size() < 2 || words[1].find('=') != std::string::npos) {
    throw usage_error("odyssey bench plan", "FILE.yml before the key=value words",
                      words.size() < 2 ? "nothing" : words[1], "plan");
  }
  BenchAttentionCommand rows;
  rows.ranks = {4, 8};
  rows.lengths = {2048, 4096, 8192};
  rows = attention_rows(arguments, reader, rows);
  rows.key_values.assign(words.begin() + 2, words.end());
  const auto is_set = [&](const char* key) {
    return std::any_of(rows.key_values.begin(), rows.key_values.end(),
                       [&](const std::string& word) { return word.starts_with(key); });
  };
  if (!is_set("base_num_query_heads=") && !is_set("base_num_kv_heads=")) {
    rows.key_values.insert(rows.key_values.end(),
                           {"base_num_query_heads=8", "base_num_kv_heads=2"});
  }
  return run_bench_plan({words[1], rows}, reader.engine());
}

int run_step(const BenchArguments& arguments, const Reader& reader) {
  BenchStepCommand command;
  const std::vector<std::string>& words = arguments.words;
  if (words.size() < 2 || words[1].find('=') != std::string::npos) {
    throw usage_error("odyssey bench step", "CONFIG.yml before the key=value words",
                      words.size() < 2 ? "nothing" : words[1], "step");
  }
  command.yml = words[1];
  command.key_values.assign(words.begin() + 2, words.end());
  command.ranks =
      static_cast<int>(reader.whole("--ranks", arguments.ranks, kMostRanks, command.ranks));
  command.lengths = reader.wholes("--lengths", arguments.lengths, kLongest);
  command.choice = reader.choice();
  command.steps = reader.whole("--steps", arguments.steps, kMostSteps, command.steps);
  command.repeats =
      static_cast<int>(reader.whole("--repeats", arguments.repeats, kMostRepeats, command.repeats));
  command.json = arguments.json;
  return run_bench_step(command, reader.engine());
}

void refuse_options_of_others(const BenchArguments& arguments, const std::string& kind) {
  for (const BenchOption& option : bench_option_table()) {
    const bool is_of_kind =
        std::find(option.kinds.begin(), option.kinds.end(), kind) != option.kinds.end();
    if (is_of_kind || (arguments.*option.text).empty()) continue;
    throw usage_error("option", bench_option_names(kind), option.name, kind);
  }
}

}  // namespace

std::span<const BenchOption> bench_option_table() {
  static const std::vector<BenchOption> table = {
      {"--json", &BenchArguments::json, kKinds},
      {"--threads", &BenchArguments::threads, {"kernel"}},
      {"--seconds", &BenchArguments::seconds, {"kernel"}},
      {"--clock", &BenchArguments::clock, {"kernel"}},
      {"--ranks", &BenchArguments::ranks, {"attention", "step", "plan"}},
      {"--lengths", &BenchArguments::lengths, {"attention", "step", "plan"}},
      {"--strategies", &BenchArguments::strategies, {"attention", "step", "plan"}},
      {"--placements", &BenchArguments::placements, {"attention", "step", "plan"}},
      {"--documents", &BenchArguments::documents, {"attention"}},
      {"--steps", &BenchArguments::steps, {"step"}},
      {"--repeats", &BenchArguments::repeats, {"attention", "step", "plan"}},
      {"--comm", &BenchArguments::comm, {"attention", "step", "plan"}}};
  return table;
}

std::string bench_option_names(const std::string& kind) {
  const bool is_kind = std::find(kKinds.begin(), kKinds.end(), kind) != kKinds.end();
  std::vector<std::string> names;
  for (const BenchOption& option : bench_option_table()) {
    if (!is_kind ||
        std::find(option.kinds.begin(), option.kinds.end(), kind) != option.kinds.end()) {
      names.emplace_back(option.name);
    }
  }
  names.emplace_back("--help");
  return join_with_or(names);
}

int run_bench(const BenchArguments& arguments) {
  const std::string kind = arguments.words.empty() ? "" : arguments.words[0];
  if (std::find(kKinds.begin(), kKinds.end(), kind) == kKinds.end()) {
    throw usage_error("odyssey bench", join_with_or(kKinds), kind.empty() ? "nothing" : kind, "");
  }
  refuse_options_of_others(arguments, kind);
  const Reader reader(arguments, kind);
  if (kind == "attention") return run_attention(arguments, reader);
  if (kind == "step") return run_step(arguments, reader);
  if (kind == "plan") return run_plan(arguments, reader);
  return run_kernel(arguments, reader);
}

}  // namespace odyssey
