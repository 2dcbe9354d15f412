// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_command.h"

#include <cstdio>

#include <fmt/core.h>

#include "apps/bench_json.h"
#include "apps/launch.h"
#include "odyssey/kernels/isa.h"

namespace odyssey {
namespace {

JsonLine json_line(const BenchProblem& p, const BenchResult& r, const BenchOptions& options) {
  JsonLine line;
  line.add("kernel", name_of(p.kernel))
      .add("direction", p.direction)
      .add("dtype", p.dtype)
      .add("isa", r.isa)
      .add("mask", p.mask)
      .add("batch", p.batch)
      .add("sequence", p.sequence)
      .add("heads", p.heads)
      .add("kv_heads", p.kv_heads)
      .add("head_dim", p.head_size)
      .add("threads", r.threads)
      .add("clock", name_of(options.clock))
      .add("runs", r.runs)
      .add("median_seconds", r.median_seconds)
      .add("min_seconds", r.min_seconds)
      .add("max_seconds", r.max_seconds)
      .add("tflops", r.tflops)
      .add("share_of_peak", r.share_of_peak)
      .add("speedup", r.speedup);
  if (p.kernel == BenchKernel::kMatmul) line.add("t", p.t).add("n", p.n).add("k", p.k);
  if (p.is_elementwise()) {
    line.add("rows", p.rows)
        .add("width", p.width)
        .add("gbytes_per_second", r.gbytes_per_second)
        .add("copy_gbytes_per_second", r.live_peak);
  } else {
    line.add("live_peak_tflops", r.live_peak);
  }
  return line;
}

// Attention, matrix products and the rest have columns of their own.
std::string_view heading(const BenchProblem& p) {
  if (p.kernel == BenchKernel::kAttention) return "mask     B      S   H   K   D";
  if (p.kernel == BenchKernel::kMatmul) return "      T       N       K      ";
  return "   rows    width             ";
}

std::string shape(const BenchProblem& p) {
  if (p.kernel == BenchKernel::kAttention) {
    return fmt::format("{:<6} {:>3} {:>6} {:>3} {:>3} {:>3}", p.mask, p.batch, p.sequence, p.heads,
                       p.kv_heads, p.head_size);
  }
  if (p.kernel == BenchKernel::kMatmul) {
    return fmt::format("{:>7} {:>7} {:>7}      ", p.t, p.n, p.k);
  }
  return fmt::format("{:>7} {:>8}             ", p.rows, p.width);
}

void print_heading(const BenchProblem& p, const BenchOptions& options) {
  fmt::print("\n{:<13} {:<15} {:<5} {:<8} {} {:>7} {:>10} {:>10} {:>10} {:>8} {:>8} {:>6}{}\n",
             "kernel", "direction", "dtype", "isa", heading(p), "threads", "median ms", "min ms",
             "max ms", p.is_elementwise() ? "GB/s" : "TFLOP/s",
             p.is_elementwise() ? "copy" : "peak", "share",
             options.threads.size() > 1 ? " speedup" : "");
}

void print_row(const BenchProblem& p, const BenchResult& r, const BenchOptions& options) {
  fmt::print(
      "{:<13} {:<15} {:<5} {:<8} {} {:>7} {:>10.3f} {:>10.3f} {:>10.3f} {:>8.3f} {:>8.3f} "
      "{:>5.1f}%{}\n",
      name_of(p.kernel), p.direction, p.dtype, r.isa, shape(p), r.threads, 1e3 * r.median_seconds,
      1e3 * r.min_seconds, 1e3 * r.max_seconds, p.is_elementwise() ? r.gbytes_per_second : r.tflops,
      r.live_peak, 100 * r.share_of_peak,
      options.threads.size() > 1 ? fmt::format(" {:>6.2f}x", r.speedup) : "");
  std::fflush(stdout);
}

}  // namespace

int run_bench_command(const BenchCommand& command) {
  const Isa isa = isa_in_use();  // refuses a wrong ODYSSEY_MAX_ISA
  std::vector<BenchProblem> problems;
  std::vector<std::string> sets = command.sets;
  if (sets.empty()) sets = {"attention", "matmul", "elementwise"};
  for (const std::string& set : sets) {
    for (BenchProblem& problem : read_bench_set(set)) problems.push_back(std::move(problem));
  }
  BenchJson json(command.json);
  fmt::print("kernels: {}; peak of bf16: {}; peak of fp32: {}; random data; {} time\n",
             name_of(isa), name_of(bf16_peak(isa)), name_of(fp32_peak(isa)),
             name_of(command.options.clock));
  std::string_view last;
  for (const BenchProblem& problem : problems) {
    if (heading(problem) != last) print_heading(problem, command.options);
    last = heading(problem);
    for (const BenchResult& result : run_bench_problem(problem, command.options)) {
      print_row(problem, result, command.options);
      json.write(json_line(problem, result, command.options));
    }
  }
  return kExitDone;
}

}  // namespace odyssey
