// SPDX-License-Identifier: Apache-2.0
#include "apps/calibrate_probes.h"

#include <algorithm>
#include <set>

#include "apps/attention_calls.h"
#include "apps/bench_tensors.h"
#include "apps/calibrate_transfers.h"
#include "apps/cores.h"
#include "odyssey/base/parallel_for.h"
#include "odyssey/comm/all_reduce.h"
#include "odyssey/comm/barrier.h"
#include "odyssey/kernels/isa.h"

namespace odyssey {
namespace {

// Cores and hosts of some ranks.
struct Machine {
  int64_t cores_per_host = 1, cores = 1;
  int hosts = 1;
};

Machine machine_of(Group& world) {
  std::set<std::pair<uint64_t, int>> cores;
  std::set<uint64_t> hosts;
  for (const CoreSet& set : gather_cores(world)) {
    hosts.insert(set.host);
    for (int core = 0; core < CoreSet::kMostCores; ++core) {
      if (set.contains(core)) cores.insert({set.host, core});
    }
  }
  Machine machine;
  machine.cores = static_cast<int64_t>(cores.size());
  machine.hosts = static_cast<int>(hosts.size());
  machine.cores_per_host = machine.cores / machine.hosts;
  return machine;
}

// One rank's part of the measurement: collects all probes, times them by turns, and finds the
// rates.
class Calibrator {
 public:
  Calibrator(Group& group, const CalibrationPlan& plan)
      : group_(group),
        plan_(plan),
        machine_(machine_of(group)),
        blocks_(block_shapes(plan.shape, plan.quick)),
        block_calls_(make_block_calls(plan.shape, blocks_)),
        transfers_(group, plan.shape, machine_.hosts, plan.quick),
        calls_(attention_calls(group, plan.calls)) {}

  CalibrationResult run() {
    set_thread_count(1);
    add_blocks();
    add_products();
    add_rows();
    const size_t shift = add(transfers_.shift()), exchange = add(transfers_.exchange());
    const size_t gather = add(transfers_.gather()), network = add(transfers_.network());
    const size_t calls = probes_.size();
    constexpr double kProducts = 0.85;  // most of a call
    for (const auto& call : calls_) add({call, Clock::kCpu, kProducts});
    ProbeOptions options;
    options.cores = static_cast<int>(machine_.cores);
    const Isa isa = isa_in_use();
    options.peak = is_fp32() ? fp32_peak(isa) : bf16_peak(isa);
    if (plan_.quick) options.most_seconds = 0;
    times_ = time_probes(group_, probes_, options);

    CpuRates& rates = result_.rates;
    find_blocks();
    find_products();
    find_rows();
    rates.shift = transfer(transfers_.shift(), shift, result_.shift);
    rates.exchange = transfer(transfers_.exchange(), exchange, result_.exchange);
    rates.gather = transfer(transfers_.gather(), gather, result_.gather);
    FitQuality ignored;
    rates.network = transfer(transfers_.network(), network, ignored);
    find_machine();
    const int ranks_per_host = (group_.size() + machine_.hosts - 1) / machine_.hosts;
    result_.calls = fit_calls(plan_.calls, rates, ranks_per_host, seconds(calls, calls_.size()));
    apply(result_.calls, rates);
    return result_;
  }

 private:
  bool is_fp32() const { return plan_.shape.data_type == DataType::kFloat32; }

  size_t add(Probe probe) {
    probes_.push_back(std::move(probe));
    return probes_.size() - 1;
  }
  // Returns the first of them.
  size_t add(const TransferProbes& transfers) {
    const size_t first = probes_.size();
    for (const Probe& probe : transfers.probes) add(probe);
    return first;
  }

  // Of `count` probes from the first on.
  std::vector<double> seconds(size_t first, size_t count) const {
    std::vector<double> seconds;
    for (size_t i = first; i < first + count; ++i) seconds.push_back(times_.seconds[i].median);
    return seconds;
  }

  // Forward before backward, which reads what it left.
  void add_blocks() {
    for (const BlockShape& block : blocks_) {
      add({[this, block] { block_calls_->forward(block); }, Clock::kCpu, 1});
      add({[this, block] { block_calls_->backward(block); }, Clock::kCpu, 1});
    }
  }
  void find_blocks() {
    for (const bool backward : {false, true}) {
      std::vector<double> seconds;
      for (size_t i = 0; i < blocks_.size(); ++i) {
        seconds.push_back(times_.seconds[2 * i + (backward ? 1 : 0)].median);
      }
      FitQuality& quality = backward ? result_.backward : result_.forward;
      const BlockRates rates = fit_block_rates(blocks_, plan_.shape.query_tile, seconds, quality);
      (backward ? result_.rates.backward : result_.rates.forward) = rates;
    }
  }

  BenchProblem problem(BenchKernel kernel, const char* direction) const {
    BenchProblem problem;
    problem.kernel = kernel;
    problem.direction = direction;
    problem.dtype = is_fp32() ? "fp32" : "bf16";
    return problem;
  }

  // Products of a layer for few and for many tokens.
  void add_products() {
    products_ = probes_.size();
    const int64_t width = plan_.quick ? 256 : 1024;
    for (const int64_t tokens : {64, plan_.quick ? 128 : 1024}) {
      for (const char* direction : {"forward", "backward_input", "backward_weight"}) {
        BenchProblem p = problem(BenchKernel::kMatmul, direction);
        p.t = tokens;
        p.n = p.k = width;
        add({make_bench_call(p), Clock::kCpu, 1});
        const auto weights = static_cast<double>(width * width);
        product_counts_.push_back({2 * static_cast<double>(tokens) * weights, weights});
      }
    }
  }
  void find_products() {
    const RateFit fit = fit_rates(product_counts_, seconds(products_, product_counts_.size()));
    result_.rates.linear_flop = fit.rates[0];
    result_.rates.linear_weight = fit.rates[1];
  }

  // Kernels that go over rows once.
  void add_rows() {
    rows_ = probes_.size();
    const int64_t rows = plan_.quick ? 64 : 1024, width = 1024;
    for (const BenchKernel kernel :
         {BenchKernel::kRmsNorm, BenchKernel::kRope, BenchKernel::kSwiglu}) {
      for (const char* direction : {"forward", "backward"}) {
        BenchProblem p = problem(kernel, direction);
        p.rows = rows;
        p.width = width;
        add({make_bench_call(p)});
      }
    }
    for (const BenchKernel kernel : {BenchKernel::kCrossEntropy, BenchKernel::kAdamw}) {
      const bool is_step = kernel == BenchKernel::kAdamw;
      BenchProblem p = problem(kernel, is_step ? "step" : "backward");
      if (is_step) p.dtype = "fp32";
      p.rows = rows;
      p.width = width;
      add({make_bench_call(p)});
    }
    // Some MiB: what the passes around attention read and write; not in the inner caches.
    const int64_t bytes = (plan_.quick ? 1 : 8) * (int64_t{1} << 20);
    copy_from_ = random_buffer<float>(bytes / 4, 0);
    copy_to_ = Buffer<float>(bytes / 4);
    add({[this] { std::copy_n(copy_from_.data(), copy_from_.size(), copy_to_.data()); }});
    elements_ = static_cast<double>(rows * width);
  }
  void find_rows() {
    const auto element = [&](size_t i) { return times_.seconds[rows_ + i].median / elements_; };
    CpuRates& rates = result_.rates;
    rates.norm_element = 2 * element(0) + element(1);
    rates.rope_element = 2 * element(2) + element(3);
    rates.activation_element = 2 * element(4) + element(5);
    rates.logit_element = element(6);
    const double copied = static_cast<double>(copy_from_.size()) * 4;
    rates.pass_byte = times_.seconds[rows_ + 8].median / (2 * copied);
    rates.parameter = element(7) + 4 * rates.pass_byte;  // and one pass for the gradients' norm
  }

  TransferRates transfer(const TransferProbes& transfers, size_t first, FitQuality& quality) {
    if (transfers.probes.empty()) return {};
    std::vector<std::vector<double>> counts;
    for (const TransferCount& count : transfers.counts) {
      counts.push_back({count.messages, count.bytes});
    }
    const RateFit fit = fit_rates(counts, seconds(first, counts.size()));
    quality = fit.quality;
    return {fit.rates[0], fit.rates[1]};
  }

  void find_machine() {
    CpuRates& rates = result_.rates;
    rates.data_type = plan_.shape.data_type;
    rates.head_size = plan_.shape.head_size;
    rates.query_tile = plan_.shape.query_tile;
    rates.cores_per_host = machine_.cores_per_host;
    rates.live_peak_tflops = times_.reference_peak;
    // Nobody to talk to: a message is a pass that reads and writes.
    const TransferRates copy{0, 2 * rates.pass_byte};
    if (transfers_.shift().probes.empty()) rates.shift = rates.gather = copy;
    if (transfers_.exchange().probes.empty()) rates.exchange = {0, 4 * rates.pass_byte};
    if (transfers_.network().probes.empty()) rates.network = rates.shift;
    barrier(group_);
    double peak[] = {peak_tflops(fp32_peak(isa_in_use()), 1, Clock::kCpu)};
    all_reduce_sum(group_, peak);
    result_.fp32_tflops = peak[0] / group_.size();
    result_.cores = machine_.cores;
    result_.rounds = times_.rounds;
    result_.peak = times_.peak;
  }

  Group& group_;
  const CalibrationPlan& plan_;
  const Machine machine_;
  std::vector<BlockShape> blocks_;
  std::unique_ptr<BlockCalls> block_calls_;
  TransferCalls transfers_;
  const std::vector<std::function<void()>> calls_;
  Buffer<float> copy_from_, copy_to_;
  std::vector<Probe> probes_;
  size_t products_ = 0, rows_ = 0;  // the first of them
  std::vector<std::vector<double>> product_counts_;
  double elements_ = 0;  // of a row kernel's call
  ProbeTimes times_;
  CalibrationResult result_;
};

}  // namespace

CalibrationResult calibrate(const BenchRanks& ranks, const CalibrationPlan& plan) {
  CalibrationResult result;
  ranks.run(plan.ranks, [&](Group& group) {
    const CalibrationResult mine = Calibrator(group, plan).run();
    if (group.rank() == 0) result = mine;
  });
  return result;
}

}  // namespace odyssey
