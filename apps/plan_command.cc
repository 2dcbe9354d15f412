// SPDX-License-Identifier: Apache-2.0
#include "apps/plan_command.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <string_view>

#include <fmt/core.h>

#include "apps/launch.h"
#include "apps/plan_json.h"
#include "apps/plan_report.h"
#include "odyssey/base/error.h"
#include "odyssey/io/atomic_file.h"
#include "odyssey/plan/chart.h"
#include "odyssey/plan/fit.h"
#include "odyssey/plan/timeline.h"
#include "odyssey/plan/validation.h"
#include "odyssey/train/memory.h"

namespace odyssey {
namespace {

constexpr double kPercent = 100;

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double most(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

std::vector<Table> read_tables(const std::vector<std::string>& files) {
  std::vector<Table> tables;
  for (const std::string& file : files.empty() ? validation_files() : files) {
    tables.push_back(read_table(file));
  }
  return tables;
}

void print_cells(const Table& table, const std::vector<double>& predicted) {
  fmt::print("{:>10} {:>10} {:>8}  layout\n", "measured", "predicted", "error %");
  for (size_t i = 0; i < predicted.size(); ++i) {
    const Cell& cell = table.cells[i];
    fmt::print("{:>10.4g} {:>10.4g} {:>+8.2f}  {}\n", cell.measured, predicted[i],
               kPercent * (predicted[i] / cell.measured - 1), cell.label);
  }
}

void validate(const Table& table) {
  std::vector<double> predicted;
  for (const Cell& cell : table.cells) {
    predicted.push_back(predict(cell, table.measure, cell.job.calibration));
  }
  fmt::print("\n{}\n{} ({}), {}\n", table.title, table.path, table.source, name_of(table.measure));
  print_cells(table, predicted);
  const Agreement result = agreement(table, predicted);
  fmt::print("mean error {:.2f} %, largest {:.2f} %", kPercent * result.mean_error,
             kPercent * result.largest_error);
  if (result.pairs > 0) {
    fmt::print("; {} of {} pairs that differ by more than 1 % in order; choice costs {:.2f} %",
               result.ordered_pairs, result.pairs, kPercent * result.largest_regret);
  }
  fmt::print("\n");
}

// Tables of one family are fitted together.
std::map<std::string, std::vector<Table>> by_calibration(std::vector<Table> tables) {
  std::map<std::string, std::vector<Table>> families;
  for (Table& table : tables) {
    const std::string family = table.cells[0].job.hardware.calibration;
    families[family].push_back(std::move(table));
  }
  return families;
}

void print_held_out(std::string_view what, const std::vector<double>& errors) {
  fmt::print("{:<44} {:>5} cells  mean error {:>6.2f} %  largest {:>6.2f} %\n", what, errors.size(),
             kPercent * mean(errors), kPercent * most(errors));
}

void cross_validate(const Table& table) {
  const std::vector<Sample> samples = samples_of({&table, 1});
  const Calibration start = table.cells[0].job.calibration;
  fmt::print("\n{} ({})\n", table.title, table.path);
  if (samples.size() > 1) {
    print_held_out("each cell from all others", held_out_errors(samples, start));
  }
  std::vector<Sample> usp, others;
  for (const Sample& sample : samples) {
    (sample.cell->strategy == "usp" ? usp : others).push_back(sample);
  }
  if (!usp.empty() && !others.empty()) {
    print_held_out("usp cells from those of other strategies", transfer_errors(others, usp, start));
  }
}

int fit_tables(const PlanCommand& command) {
  if (command.words.empty()) {
    throw user_error("odyssey plan --fit", "files of measured tables", "none",
                     "Name files such as configs/validation/*.yml.");
  }
  const auto families = by_calibration(read_tables(command.words));
  if (families.size() > 1) {
    throw user_error("odyssey plan --fit", "tables of one family of chips",
                     fmt::format("{} and {}", families.begin()->first, families.rbegin()->first),
                     "Fit them one after the other.");
  }
  const std::vector<Table>& tables = families.begin()->second;
  const std::vector<Sample> samples = samples_of(tables);
  Calibration fitted = fit(samples, tables[0].cells[0].job.calibration);
  const std::vector<double> errors = jackknife_errors(samples, fitted);
  fitted.fitted_on = fitted_on(samples, errors);
  std::vector<std::string> source = {"Fitted by `odyssey plan --fit` on:"};
  for (const Table& table : tables) {
    source.push_back(
        fmt::format("  {} ({}), {} cells", table.title, table.source, table.cells.size()));
  }
  source.emplace_back("Standard errors, by leaving out one cell at a time:");
  for (size_t f = 0; f < errors.size(); ++f) {
    const CalibrationField& field = calibration_fields()[f];
    if (field.is_fitted) {
      source.push_back(fmt::format("  {} {:.2g}{}", field.name, errors[f],
                                   errors[f] == 0 ? " (no cell depends on it)" : ""));
    }
  }
  const std::string text = calibration_text(fitted, source);
  if (command.output.empty()) {
    fmt::print("{}", text);
  } else {
    AtomicFile file(command.output);
    file.write(text);
    file.commit();
    fmt::print("wrote {}\n", command.output);
  }
  return kExitDone;
}

// Opened before anything is computed: a place that cannot be written is told at once.
struct Outputs {
  std::unique_ptr<AtomicFile> json, lengths, timeline, best_timeline;
};

std::unique_ptr<AtomicFile> open(const std::filesystem::path& path) {
  return std::make_unique<AtomicFile>(path.string());
}

Outputs open_outputs(const PlanCommand& command) {
  Outputs outputs;
  if (!command.json.empty()) outputs.json = open(command.json);
  if (command.svg.empty()) return outputs;
  std::error_code error;
  std::filesystem::create_directories(command.svg, error);
  if (error) {
    throw user_error("--svg", "a folder", command.svg,
                     fmt::format("It cannot be made: {}.", error.message()));
  }
  const std::filesystem::path folder = command.svg;
  outputs.lengths = open(folder / "lengths.svg");
  outputs.timeline = open(folder / "timeline.svg");
  outputs.best_timeline = open(folder / "timeline-best.svg");
  return outputs;
}

void finish(AtomicFile& file, const std::string& text) {
  file.write(text);
  file.commit();
}

Job job_of(const Job& job, const PlanRow& row) {
  Job other = job;
  other.config.run.parallel = row.parallel;
  other.config.run.data.global_batch_rows = row.batch_rows;
  other.config.run.data.gradient_accumulation_steps = row.accumulation;
  return other;
}

int search_layouts(const PlanCommand& command) {
  PlanReport report;
  report.job = make_job(command.yml, command.words, trainer_memory);
  Outputs outputs = open_outputs(command);
  CountCache cache;
  report.rows = search(report.job, cache);
  report.what_ifs = what_ifs(command.yml, command.words, report.job, report.asked());
  report.trust = trust(report.job);
  fmt::print("{}", report_text(report, command.top));
  if (outputs.json) finish(*outputs.json, report_json(report));
  if (outputs.lengths) {
    finish(*outputs.lengths, lengths_svg(step_curves(report.job, report.rows, command.top)));
    finish(*outputs.timeline, timeline_svg(simulate_call(report.job, cache)));
    finish(*outputs.best_timeline,
           timeline_svg(simulate_call(job_of(report.job, report.rows[0]), cache)));
  }
  return kExitDone;
}

}  // namespace

RankBytes trainer_memory(const RunConfig& config) {
  const MemoryNeed need = memory_need(config);
  return {static_cast<double>(need.state), static_cast<double>(need.whole_group),
          static_cast<double>(need.activations)};
}

int run_plan_command(const PlanCommand& command) {
  if (command.fit) return fit_tables(command);
  if (command.validate || command.cross_validate) {
    for (const Table& table : read_tables(command.words)) {
      if (command.validate) validate(table);
      if (command.cross_validate) cross_validate(table);
    }
    return kExitDone;
  }
  return search_layouts(command);
}

}  // namespace odyssey
