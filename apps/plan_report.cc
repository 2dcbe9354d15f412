// SPDX-License-Identifier: Apache-2.0
#include "apps/plan_report.h"

#include <algorithm>
#include <iterator>

#include <fmt/core.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/describe.h"
#include "odyssey/base/error.h"

namespace odyssey {
namespace {

constexpr double kPercent = 100, kGib = 1024.0 * 1024 * 1024;

// 123456789 as 123,456,789.
std::string with_commas(double value) {
  std::string text = fmt::format("{:.0f}", value);
  constexpr int kGroup = 3;
  for (int at = static_cast<int>(text.size()) - kGroup; at > 0; at -= kGroup)
    text.insert(at, 1, ',');
  return text;
}

// "attention backward 54 %, linear 20 %".
std::string largest_items(const PlanRow& row) {
  constexpr size_t kMost = 2;
  std::vector<CostItem> items = row.cost.items;
  std::stable_sort(items.begin(), items.end(),
                   [](const CostItem& a, const CostItem& b) { return a.seconds > b.seconds; });
  std::string text;
  for (size_t i = 0; i < std::min(kMost, items.size()); ++i) {
    text += fmt::format("{}{} {:.0f} %", i == 0 ? "" : ", ", items[i].name,
                        kPercent * items[i].seconds / row.step_seconds);
  }
  return text;
}

class Writer {
 public:
  Writer(const PlanReport& report, int top) : report_(report), top_(top) {}

  std::string write() {
    heading();
    table();
    reasons();
    tunings();
    asked();
    what_ifs();
    confidence();
    return fmt::to_string(text_);
  }

 private:
  template <class... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
    text_.push_back('\n');
  }

  const RunConfig& run() const { return report_.job.config.run; }

  void heading() {
    const DataConfig& data = run().data;
    line("{} on {}", run().model.name, report_.job.hardware.name);
    const int64_t rows = data.global_batch_rows * data.gradient_accumulation_steps;
    line("{} tokens a row, {} {} a step, remat_policy={}", data.sequence_length, rows,
         rows == 1 ? "row" : "rows", report_.job.config.remat_policy);
    line("");
  }

  void table() {
    line("    #  {:<16} {:<15}{} {:>8} {:>11} {:>5} {:>6}  largest items", "layout", "placement",
         groups("data x fsdp"), "step s", "tokens/s", "MFU %", "GiB");
    const auto rows = static_cast<int>(report_.rows.size());
    for (int i = 0; i < rows; ++i) {
      const PlanRow& row = report_.rows[i];
      if (i < top_ || row.is_asked) add_row(i + 1, row);
    }
    if (rows > top_) line("       {} layouts in all (--top N)", rows);
    line("> what the flags choose{}",
         report_.rows.back().fits ? "" : "; ! does not fit the memory");
    line("");
  }

  void add_row(int number, const PlanRow& row) {
    const ParallelConfig& p = row.parallel;
    line("{}{}{:>3}  {:<16} {:<15}{} {:>8.4g} {:>11} {:>5.1f} {:>6.1f}  {}",
         row.is_asked ? ">" : " ", row.fits ? " " : "!", number, layout_name(p),
         name_of(p.placement), groups(fmt::format("{} x {}", p.data, p.fsdp)), row.step_seconds,
         with_commas(row.tokens_per_second), kPercent * row.mfu, row.memory.total() / kGib,
         largest_items(row));
  }

  // A column that is there only where a batch allows several groups.
  std::string groups(const std::string& text) const {
    const bool single =
        std::all_of(report_.rows.begin(), report_.rows.end(),
                    [](const PlanRow& row) { return row.parallel.data * row.parallel.fsdp == 1; });
    return single ? "" : fmt::format(" {:>11}", text);
  }

  void reasons() {
    const PlanRow &best = report_.rows[0], &mine = report_.asked();
    if (!mine.fits) line("The layout of the flags does not fit the memory.");
    if (!best.is_asked) {
      line("Why the first: {}.", compare(best, mine));
      line("Its flags: {}", fmt::join(words_of(best), " "));
    } else if (report_.rows.size() > 1) {
      line("The flags choose the best. Why: {}.", compare(best, report_.rows[1]));
    }
    for (const std::string& finding : best.cost.findings) line("note on the first: {}", finding);
    line("");
  }

  // The fastest layouts when recomputing and micro-batches are free too.
  void tunings() {
    constexpr size_t kMost = 3;
    std::vector<const PlanRow*> rows;
    for (const PlanRow& row : report_.rows) {
      if (row.tuning) rows.push_back(&row);
    }
    if (rows.empty()) return;
    std::stable_sort(rows.begin(), rows.end(), [](const PlanRow* a, const PlanRow* b) {
      return a->tuning->step_seconds < b->tuning->step_seconds;
    });
    line("With remat_policy and gradient_accumulation_steps free, in the memory of a chip:");
    for (size_t i = 0; i < std::min(kMost, rows.size()); ++i) {
      const Tuning& tuning = *rows[i]->tuning;
      line("  {:>10.4g} s {:>8.1f} GiB  {}, remat_policy={} gradient_accumulation_steps={}",
           tuning.step_seconds, tuning.memory_bytes / kGib, name_with_placement(rows[i]->parallel),
           tuning.remat_policy, tuning.accumulation);
    }
    line("");
  }

  void asked() {
    const PlanRow& row = report_.asked();
    line("What the flags choose: {}", describe(row.parallel));
    for (const CostItem& item : row.cost.items) {
      line("  {:<22} {:>10.4f} s {:>6.1f} %", item.name, item.seconds,
           kPercent * item.seconds / row.step_seconds);
    }
    line("  {:<22} {:>10.4f} s", "step", row.step_seconds);
    line("model TFLOP/s of a chip: {:.1f} ({:.1f} % of its peak)",
         row.cost.model_teraflops / row.step_seconds, kPercent * row.mfu);
    std::string partials;
    if (row.memory.dq_partials > 0) {
      partials = fmt::format(", {:.1f} of them partial sums of dq", row.memory.dq_partials / kGib);
    }
    line("memory of a chip: {:.1f} GiB of {:.1f}{}{}", row.memory.total() / kGib,
         report_.job.hardware.memory_gib, partials, row.fits ? "" : ": does not fit");
    for (const std::string& finding : row.cost.findings) line("note: {}", finding);
    for (const std::string& note : run().notes) line("note: {}", note);
    line("");
  }

  void what_ifs() {
    if (report_.what_ifs.empty()) return;
    line("What one change would bring:");
    line("  {:>10} {:>10} {:>10}", "step s", "change s", "tokens/s");
    for (const WhatIf& what : report_.what_ifs) {
      line("  {:>10.4g} {:>+10.3g} {:>9.2f}x  {}{}", what.step_seconds, what.seconds, what.ratio,
           what.words, what.fits ? "" : " (does not fit the memory)");
    }
    line("");
  }

  void confidence() {
    line("confidence: {}: {}", name_of(report_.trust.confidence),
         fmt::join(report_.trust.reasons, "; "));
  }

  const PlanReport& report_;
  int top_;
  fmt::memory_buffer text_;
};

}  // namespace

const PlanRow& PlanReport::asked() const {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [](const PlanRow& row) { return row.is_asked; });
  ODYSSEY_CHECK(found != rows.end(), "no asked row among {}", rows.size());
  return *found;
}

std::string report_text(const PlanReport& report, int top) {
  return Writer(report, top).write();
}

}  // namespace odyssey
