// SPDX-License-Identifier: Apache-2.0
#include "apps/metrics_file.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include "odyssey/base/error.h"
#include "odyssey/io/json.h"

namespace odyssey {

MetricsFile::MetricsFile(const std::string& path, std::string run_name)
    : path_(path), run_name_(std::move(run_name)), file_(std::fopen(path.c_str(), "we")) {
  if (file_) return;
  throw user_error("metrics_file", "a file that may be written",
                   fmt::format("{} ({})", path, std::system_category().message(errno)),
                   "Make its folder or choose another file.");
}

void MetricsFile::write(const StepReport& report, double teraflops_per_step) {
  JsonLine line;
  line.add("step", report.step)
      .add("run_name", run_name_)
      .add("learning/loss", report.loss)
      .add("learning/lm_loss", report.loss)
      .add("learning/perplexity", report.perplexity)
      .add("learning/total_weights", report.total_weights)
      .add("learning/grad_norm", report.grad_norm)
      .add("learning/raw_grad_norm", report.raw_grad_norm)
      .add("learning/param_norm", report.parameter_norm)
      .add("learning/current_learning_rate", report.learning_rate);
  if (report.max_logit) line.add("learning/max_logits", *report.max_logit);
  line.add("learning/qk_clipped_heads", report.qk_clipped_heads)
      .add("perf/step_time_seconds", report.seconds)
      .add("perf/per_device_tflops", teraflops_per_step)
      .add("perf/per_device_tflops_per_sec", report.teraflops_per_second)
      .add("perf/per_device_tokens", report.tokens)
      .add("perf/per_device_tokens_per_sec", report.tokens_per_second)
      .add("perf/attention_wait_seconds", report.seconds_waiting);
  const std::string text = line.text() + "\n";
  const bool is_written = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() &&
                          std::fflush(file_.get()) == 0;
  if (is_written) return;
  throw RunError(fmt::format("cannot write metrics_file {}: {}", path_,
                             std::system_category().message(errno)));
}

}  // namespace odyssey
