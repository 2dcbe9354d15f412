// SPDX-License-Identifier: Apache-2.0
#include "odyssey/plan/validation.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <sstream>

#include <fmt/core.h>

#include "odyssey/base/error.h"
#include "odyssey/plan/fields.h"

namespace odyssey {
namespace {

constexpr std::array kMeasures = {Measure::kStepSeconds, Measure::kTokensPerSecond,
                                  Measure::kModelTeraflops, Measure::kAttentionForwardPerSecond,
                                  Measure::kAttentionForwardBackwardPerSecond};

// What the label says anyway, and what makes no other group.
constexpr std::array<std::string_view, 7> kLayoutKeys = {"context_parallel_strategy",
                                                         "ici_context_parallelism",
                                                         "ici_context_usp_ulysses_parallelism",
                                                         "ici_context_ulysses_parallelism",
                                                         "ici_fsdp_parallelism",
                                                         "ici_data_parallelism",
                                                         "max_target_length"};

Measure read_measure(Fields& fields) {
  std::vector<std::string> words;
  for (const Measure measure : kMeasures) words.emplace_back(name_of(measure));
  const std::string word = fields.choice("measures", words);
  return kMeasures[std::find(words.begin(), words.end(), word) - words.begin()];
}

std::vector<std::string> split(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string strategy_name(Strategy strategy) {
  switch (strategy) {
    case Strategy::kAllGather:
      return "all_gather";
    case Strategy::kRing:
      return "ring";
    case Strategy::kUlysses:
      return "ulysses";
    case Strategy::kUsp:
      return "usp";
  }
  return "?";
}

// Takes measured=VALUE off the words.
double take_measured(std::vector<std::string>& words, const std::string& where) {
  constexpr std::string_view kWord = "measured=";
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (!word->starts_with(kWord)) continue;
    double value = 0;
    const char* end = word->data() + word->size();
    const auto [stop, error] = std::from_chars(word->data() + kWord.size(), end, value);
    if (error != std::errc() || stop != end || !(value > 0) || !std::isfinite(value)) {
      throw user_error(where, "measured=NUMBER above 0", *word, "Give the published figure.");
    }
    words.erase(word);
    return value;
  }
  throw user_error(where, "a word measured=NUMBER", "a row without it",
                   "Give the published figure.");
}

Cell read_cell(std::vector<std::string> words, const std::vector<std::string>& common,
               const std::string& where) {
  Cell cell;
  cell.measured = take_measured(words, where);
  // A row may say otherwise than the lines that are common to all.
  const auto key_of = [](const std::string& word) { return word.substr(0, word.find('=')); };
  std::vector<std::string> all = words;
  for (const std::string& word : common) {
    const bool replaced = std::any_of(words.begin(), words.end(), [&](const std::string& other) {
      return key_of(other) == key_of(word);
    });
    if (!replaced) all.push_back(word);
  }
  try {
    cell.job = make_job("", all);
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", where, error.what()));
  }
  cell.counts = count(cell.job);
  const RunConfig& run = cell.job.config.run;
  cell.strategy = strategy_name(run.parallel.strategy);
  cell.label =
      fmt::format("{} {}x{} ", cell.strategy, run.parallel.ring_size, run.parallel.ulysses_size);
  if (run.parallel.fsdp > 1) cell.label += fmt::format("fsdp {} ", run.parallel.fsdp);
  if (run.parallel.data > 1) cell.label += fmt::format("data {} ", run.parallel.data);
  cell.label += fmt::format("{}", run.data.sequence_length);
  cell.group = fmt::format("{}", run.data.sequence_length);
  for (const std::string& word : words) {
    if (std::find(kLayoutKeys.begin(), kLayoutKeys.end(), key_of(word)) != kLayoutKeys.end()) {
      continue;
    }
    cell.label += " " + word;
    cell.group += " " + word;
  }
  return cell;
}

Scope scope_of(Measure measure) {
  if (measure == Measure::kAttentionForwardPerSecond) return Scope::kAttentionForward;
  if (measure == Measure::kAttentionForwardBackwardPerSecond) return Scope::kAttention;
  return Scope::kStep;
}

// Larger is better for rates; turns a figure into a time for comparing.
double cost_of(Measure measure, double figure) {
  return measure == Measure::kStepSeconds ? figure : 1 / figure;
}

}  // namespace

std::string_view name_of(Measure measure) {
  switch (measure) {
    case Measure::kStepSeconds:
      return "step_seconds";
    case Measure::kTokensPerSecond:
      return "tokens_per_second";
    case Measure::kModelTeraflops:
      return "model_tflops";
    case Measure::kAttentionForwardPerSecond:
      return "attention_forward_per_second";
    case Measure::kAttentionForwardBackwardPerSecond:
      return "attention_forward_backward_per_second";
  }
  return "?";
}

Table read_table(const std::string& path) {
  Fields fields(path);
  Table table;
  table.path = path;
  table.title = fields.text("title");
  table.source = fields.text("source");
  table.measure = read_measure(fields);
  const std::vector<std::string> rows = fields.list("rows");
  std::vector<std::string> common;
  for (const auto& [name, value] : fields.rest()) common.push_back(name + "=" + value);
  for (size_t row = 0; row < rows.size(); ++row) {
    const std::string where = fmt::format("{}: row {}", path, row + 1);
    table.cells.push_back(read_cell(split(rows[row]), common, where));
  }
  if (table.cells.empty()) {
    throw user_error(fields.label("rows"), "at least one row", "none", "Add '- words' lines.");
  }
  return table;
}

std::vector<std::string> validation_files() {
  std::vector<std::string> files;
  for (const std::string& name : plan_file_names("validation")) {
    files.push_back(plan_file("validation", name));
  }
  return files;
}

double predict(const Cell& cell, Measure measure, const Calibration& calibration) {
  Job job = cell.job;
  job.calibration = calibration;
  const Cost cost = estimate(job, cell.counts, scope_of(measure));
  const double seconds = cost.step_seconds();
  switch (measure) {
    case Measure::kStepSeconds:
      return seconds;
    case Measure::kTokensPerSecond:
      return static_cast<double>(job.config.run.data.sequence_length *
                                 job.config.run.data.global_batch_rows *
                                 job.config.run.data.gradient_accumulation_steps) /
             static_cast<double>(cell.counts.ranks) / seconds;
    case Measure::kModelTeraflops:
      return cost.model_teraflops / seconds;
    case Measure::kAttentionForwardPerSecond:
    case Measure::kAttentionForwardBackwardPerSecond:
      return static_cast<double>(job.config.run.model.layers) / seconds;
  }
  return 0;
}

Agreement agreement(const Table& table, const std::vector<double>& predicted) {
  ODYSSEY_CHECK(predicted.size() == table.cells.size(), "{} predictions, {} cells",
                predicted.size(), table.cells.size());
  constexpr double kTie = 0.01;
  Agreement result;
  std::map<std::string, std::vector<size_t>> groups;
  for (size_t i = 0; i < predicted.size(); ++i) {
    const double error = std::fabs(predicted[i] / table.cells[i].measured - 1);
    result.mean_error += error / static_cast<double>(predicted.size());
    result.largest_error = std::max(result.largest_error, error);
    groups[table.cells[i].group].push_back(i);
  }
  for (const auto& [name, members] : groups) {
    size_t chosen = members[0], best = members[0];
    const auto measured = [&](size_t i) { return cost_of(table.measure, table.cells[i].measured); };
    const auto model = [&](size_t i) { return cost_of(table.measure, predicted[i]); };
    for (const size_t a : members) {
      if (measured(a) < measured(best)) best = a;
      if (model(a) < model(chosen)) chosen = a;
      for (const size_t b : members) {
        if (measured(b) < measured(a) * (1 + kTie)) continue;
        ++result.pairs;
        result.ordered_pairs += model(a) < model(b);
      }
    }
    result.largest_regret = std::max(result.largest_regret, measured(chosen) / measured(best) - 1);
  }
  return result;
}

}  // namespace odyssey
