// SPDX-License-Identifier: Apache-2.0
#include "apps/plan_json.h"

#include <cmath>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "odyssey/io/json.h"

namespace odyssey {
namespace {

int64_t bytes(double value) {
  return std::llround(value);
}

JsonLine row_json(const PlanRow& row, const Job& job) {
  const ParallelConfig& p = row.parallel;
  const bool balanced = p.placement != PlacementKind::kContiguous;
  JsonLine breakdown;
  for (const CostItem& item : row.cost.items) breakdown.add(item.name, item.seconds);
  JsonLine line;
  line.add("strategy", name_of(p.strategy)).add("ring", p.ring_size).add("ulysses", p.ulysses_size);
  line.add("data", p.data).add("fsdp", p.fsdp);
  line.add_flag("load_balance", balanced).add("reorder", balanced ? name_of(p.placement) : "none");
  line.add("batch_rows", row.batch_rows).add("gradient_accumulation_steps", row.accumulation);
  line.add("remat_policy", row.remat_policy);
  line.add("step_seconds", row.step_seconds).add("tokens_per_second", row.tokens_per_second);
  line.add("mfu", row.mfu);
  line.add("memory_bytes_per_chip", bytes(row.memory.total())).add_flag("fits", row.fits);
  line.add_flag("yours", row.is_asked);
  line.add("breakdown", breakdown).add("findings", row.cost.findings);
  Job own = job;
  own.config.run.parallel = p;
  line.add("confidence", name_of(trust(own).confidence));
  line.add("flags", fmt::format("{}", fmt::join(words_of(row), " ")));
  if (row.tuning) {
    JsonLine tuning;
    tuning.add("remat_policy", row.tuning->remat_policy);
    tuning.add("gradient_accumulation_steps", row.tuning->accumulation);
    tuning.add("step_seconds", row.tuning->step_seconds);
    tuning.add("memory_bytes_per_chip", bytes(row.tuning->memory_bytes));
    line.add("tuning", tuning);
  }
  return line;
}

JsonLine what_if_json(const WhatIf& what) {
  JsonLine line;
  line.add("flags", what.words).add("step_seconds", what.step_seconds);
  line.add("seconds", what.seconds).add("ratio", what.ratio).add_flag("fits", what.fits);
  return line;
}

JsonLine machine_json(const Hardware& hardware) {
  JsonLine line;
  line.add("name", hardware.name).add("kind", name_of(hardware.kind)).add("chips", hardware.chips);
  line.add("tflops", hardware.tflops).add("memory_gib", hardware.memory_gib);
  line.add("calibration", hardware.calibration);
  return line;
}

}  // namespace

std::string report_json(const PlanReport& report) {
  const RunConfig& run = report.job.config.run;
  JsonLine confidence;
  confidence.add("level", name_of(report.trust.confidence)).add("reasons", report.trust.reasons);
  std::vector<JsonLine> rows, changes;
  for (const PlanRow& row : report.rows) rows.push_back(row_json(row, report.job));
  for (const WhatIf& what : report.what_ifs) changes.push_back(what_if_json(what));
  JsonLine line;
  line.add("machine", machine_json(report.job.hardware)).add("model", run.model.name);
  line.add("sequence_length", run.data.sequence_length);
  line.add("why",
           report.rows.size() > 1
               ? compare(report.rows[0], report.rows[0].is_asked ? report.rows[1] : report.asked())
               : "");
  line.add("confidence", confidence).add("rows", rows).add("what_ifs", changes);
  return line.text() + "\n";
}

}  // namespace odyssey
