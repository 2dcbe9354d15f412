// SPDX-License-Identifier: Apache-2.0
// Holds the model to its accuracy on measured tables, and the fit to what it must find.
#include "odyssey/plan/validation.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "odyssey/base/error.h"
#include "odyssey/plan/fit.h"

namespace odyssey {
namespace {

using testing::HasSubstr;

const Table& v5p_table() {
  static const Table table = read_table("configs/validation/llama3-8b-v5p-64.yml");
  return table;
}

Agreement agreement_of(const Table& table) {
  std::vector<double> predicted;
  for (const Cell& cell : table.cells) {
    predicted.push_back(predict(cell, table.measure, cell.job.calibration));
  }
  return agreement(table, predicted);
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

TEST(Validation, ExplainsTheFifteenCells) {
  ASSERT_EQ(v5p_table().cells.size(), 15u);
  const Agreement result = agreement_of(v5p_table());
  EXPECT_LE(result.mean_error, 0.010);
  EXPECT_LE(result.largest_error, 0.025);
  EXPECT_EQ(result.pairs, 26);
  EXPECT_EQ(result.ordered_pairs, 26);
  EXPECT_EQ(result.largest_regret, 0);
}

TEST(Validation, TheFileOfConstantsIsTheFitOfTheTable) {
  const Calibration start = v5p_table().cells[0].job.calibration;
  const Calibration fitted = fit(samples_of({&v5p_table(), 1}), start);
  for (const CalibrationField& field : calibration_fields()) {
    EXPECT_NEAR(fitted.*field.value / (start.*field.value), 1, 0.002) << field.name;
  }
}

TEST(Validation, PredictsCellsThatTheFitHasNotSeen) {
  const Calibration start = v5p_table().cells[0].job.calibration;
  const std::vector<Sample> samples = samples_of({&v5p_table(), 1});
  EXPECT_LE(mean(held_out_errors(samples, start)), 0.013);
  std::vector<Sample> usp, others;
  for (const Sample& sample : samples) {
    (sample.cell->strategy == "usp" ? usp : others).push_back(sample);
  }
  ASSERT_EQ(usp.size(), 9u);
  const std::vector<double> errors = transfer_errors(others, usp, start);
  EXPECT_LE(mean(errors), 0.015);
  EXPECT_LE(*std::max_element(errors.begin(), errors.end()), 0.035);
}

// The critical rank of a contiguous ring of 8 does (N - 1/2) / (N/2) times its share: 53.3 %.
TEST(Validation, AContiguousRingOnGpusReaches53Percent) {
  int tables = 0;
  for (const std::string& file : validation_files()) {
    if (file.find("ring-flash-attention") == std::string::npos ||
        file.find("balanced") != std::string::npos) {
      continue;
    }
    ++tables;
    const Table table = read_table(file);
    const auto predicted = [&](size_t i) {
      return predict(table.cells[i], table.measure, table.cells[i].job.calibration);
    };
    ASSERT_EQ(table.cells[0].counts.ranks, 1);
    ASSERT_EQ(table.cells[1].job.config.run.parallel.placement, PlacementKind::kContiguous);
    EXPECT_NEAR(predicted(1) / (8 * predicted(0)), 0.533, 0.02) << file;
  }
  EXPECT_EQ(tables, 4);
}

TEST(Validation, EveryTableOfTheFolderIsWhole) {
  for (const std::string& file : validation_files()) {
    const Table table = read_table(file);
    EXPECT_LT(agreement_of(table).mean_error, 0.25) << file;
  }
}

TEST(Validation, CountsPairsAndRegret) {
  Table table = v5p_table();
  table.cells.resize(3);
  for (Cell& cell : table.cells) cell.group = "one";
  table.cells[0].measured = 1;
  table.cells[1].measured = 2;
  table.cells[2].measured = 2.01;  // a tie with the second
  const Agreement result = agreement(table, {3, 1, 2});
  EXPECT_EQ(result.pairs, 2);
  EXPECT_EQ(result.ordered_pairs, 0);
  EXPECT_DOUBLE_EQ(result.largest_regret, 1);  // chose 2 where 1 was to be had
  EXPECT_DOUBLE_EQ(result.largest_error, 2);
}

TEST(Validation, RefusesWrongTables) {
  const std::string path = std::filesystem::temp_directory_path() /
                           ("validation_test_" + std::to_string(getpid()) + ".yml");
  const auto message = [&](const std::string& text) -> std::string {
    std::ofstream(path) << text;
    try {
      read_table(path);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string head = "title: t\nsource: s\nmeasures: step_seconds\nhardware: tpu-v5p-64\n";
  EXPECT_EQ(message("title: t\n"),
            path +
                ": source: expected this field, got a file without it. Add a line 'source: "
                "value'.");
  EXPECT_THAT(message("title: t\nsource: s\nmeasures: days\n"),
              HasSubstr(":3: measures: expected step_seconds, tokens_per_second"));
  EXPECT_EQ(message(head + "rows: []\n"),
            path + ":5: rows: expected at least one row, got none. Add '- words' lines.");
  EXPECT_EQ(message(head + "rows:\n  - max_target_length=64\n"),
            path +
                ": row 1: expected a word measured=NUMBER, got a row without it. Give the "
                "published figure.");
  EXPECT_THAT(message(head + "rows:\n  - measured=0\n"),
              HasSubstr("row 1: expected measured=NUMBER above 0, got measured=0"));
  EXPECT_THAT(message(head + "rows:\n  - stepz=1 measured=1\n"),
              HasSubstr("row 1: unknown key: expected a key of configs/base.yml, got stepz"));
  std::filesystem::remove(path);
}

TEST(Fit, FindsTheMinimum) {
  const auto valley = [](const std::vector<double>& x) {
    return 100 * std::pow(x[1] - x[0] * x[0], 2) + std::pow(1 - x[0], 2);
  };
  const std::vector<double> found = minimise(valley, {-1.2, 1}, 0.5);
  EXPECT_NEAR(found[0], 1, 1e-4);
  EXPECT_NEAR(found[1], 1, 1e-4);
}

TEST(Fit, RecoversConstantsFromTheirOwnPredictions) {
  Table table = v5p_table();
  Calibration truth = table.cells[0].job.calibration;
  truth.attention_efficiency = 0.8;
  truth.collective_efficiency = 0.6;
  truth.memory_efficiency = 0.55;
  truth.ring_step_seconds = 3e-5;
  truth.fixed_seconds = 0.2;
  for (Cell& cell : table.cells) cell.measured = predict(cell, table.measure, truth);
  const Calibration fitted = fit(samples_of({&table, 1}), v5p_table().cells[0].job.calibration);
  for (const CalibrationField& field : calibration_fields()) {
    EXPECT_NEAR(fitted.*field.value / (truth.*field.value), 1, 1e-3) << field.name;
  }
}

TEST(Calibration, IsReadAsItIsWritten) {
  const Calibration calibration = load_calibration("tpu");
  const std::string path = std::filesystem::temp_directory_path() /
                           ("calibration_test_" + std::to_string(getpid()) + ".yml");
  const std::vector<std::string> source = {"a test"};
  std::ofstream(path) << calibration_text(calibration, source);
  const Calibration again = load_calibration(path);
  for (const CalibrationField& field : calibration_fields()) {
    EXPECT_EQ(again.*field.value, calibration.*field.value) << field.name;
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace odyssey
