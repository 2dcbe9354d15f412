// SPDX-License-Identifier: Apache-2.0
#include "odyssey/plan/cost.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "odyssey/base/error.h"
#include "odyssey/plan/cpu_cost.h"
#include "odyssey/plan/network.h"

namespace odyssey {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9;

double real(int64_t number) {
  return static_cast<double>(number);
}

// What differs between the three kinds of machine, beside rates: how their attention is written.
struct KernelTraits {
  bool static_backward_grid;  // hidden tiles of the backward grid are visited too
  bool dq_partials;           // dq leaves the kernel as one fp32 tile for each pair of tiles
  int64_t backward_cores;
  // Bytes of ring passes over tensors, for each element of a rank's queries, and of its K and V.
  double merge_forward, merge_backward, merge_backward_kv;
  double layout_passes;   // of gathered K and V, each a read or write of one tensor
  double gradient_bytes;  // of dK and dV in gathers and exchanges
};

class Estimator {
 public:
  Estimator(const Job& job, const Counts& counts, Scope scope)
      : job_(job),
        config_(job.config),
        run_(job.config.run),
        model_(job.config.run.model),
        hardware_(job.hardware),
        calibration_(job.calibration),
        counts_(counts),
        scope_(scope),
        mask_(&counts.masks.front()),
        routes_(route(job.hardware, job.config.run.parallel)),
        traits_(traits()) {}

  CallParts call_parts(const MaskCounts& mask) {
    mask_ = &mask;
    const TransferCounts& t = mask_->transfers;
    const bool ring = run_.parallel.ring_size > 1 && !run_.parallel.outer_gather;
    CallParts parts;
    parts.tile = forward_seconds(1);
    if (ring) {
      parts.merge = merge_forward();
      parts.step = calibration_.ring_step_seconds;
      parts.hop = real(t.hop) * element_bytes() / routes_.neighbour;
      parts.hops = t.hops;
    }
    parts.exchange_in = collective_seconds(real(t.exchange_in) * element_bytes(), routes_.exchange);
    parts.exchange_out =
        collective_seconds(real(t.exchange_out) * element_bytes(), routes_.exchange);
    if (run_.parallel.ring_size > 1 && run_.parallel.outer_gather) {
      parts.gather =
          collective_seconds(real(t.gather) * element_bytes(), routes_.gather) + layout_seconds();
    }
    return parts;
  }

  Cost estimate() {
    if (was_measured(job_)) {
      cost_ = estimate_on_cores(job_, counts_, scope_);
      cost_.model_teraflops = model_teraflops();
      return std::move(cost_);
    }
    const bool whole = scope_ == Scope::kStep;
    if (whole) add("linear", linear());
    for_each_mask([&] { add_attention(); });
    if (whole) add_weights();
    for_each_mask([&] {
      if (run_.parallel.ring_size > 1 && run_.parallel.outer_gather) add_gather();
      if (run_.parallel.ring_size > 1 && !run_.parallel.outer_gather) add_ring();
      if (run_.parallel.ulysses_size > 1) add("head exchange", masked_layers() * head_exchange());
    });
    for (CostItem& item : cost_.items) item.seconds *= micro_batches();
    if (whole) add("fixed", calibration_.fixed_seconds);
    add_findings();
    cost_.model_teraflops = model_teraflops();
    return std::move(cost_);
  }

 private:
  // Layers of several masks add to one item.
  void add(std::string_view name, double seconds) {
    const auto item = std::ranges::find(cost_.items, name, &CostItem::name);
    if (item != cost_.items.end()) {
      item->seconds += seconds;
    } else {
      cost_.items.push_back({name, seconds});
    }
  }

  template <class Add>
  void for_each_mask(const Add& add_items) {
    for (const MaskCounts& mask : counts_.masks) {
      mask_ = &mask;
      add_items();
    }
  }

  double layers() const { return real(model_.layers); }
  double masked_layers() const { return real(mask_->share.layers); }
  double micro_batches() const { return real(run_.data.gradient_accumulation_steps); }
  double element_bytes() const { return model_.data_type == DataType::kFloat32 ? 4 : 2; }
  double flops_per_second() const {
    return kTera *
           (model_.data_type == DataType::kFloat32 ? hardware_.fp32_tflops : hardware_.tflops);
  }
  double memory_seconds(double bytes) const {
    return bytes / (hardware_.memory_gb_per_second * kGiga * calibration_.memory_efficiency);
  }
  double collective_seconds(double bytes, double rate) const {
    return rate > 0 ? bytes / (rate * calibration_.collective_efficiency) : 0;
  }
  double forward_runs() const { return scope_ == Scope::kStep && config_.remat.attention ? 2 : 1; }
  double backward_runs() const { return scope_ == Scope::kAttentionForward ? 0 : 1; }
  // Runs of what stands around the kernels: q, k and v come again for the backward kernel, also
  // where the attention itself was kept. An attention call alone keeps them.
  double input_runs() const { return scope_ == Scope::kStep ? 2 : 1; }

  // The kernel threads three dq accumulators through its steps, unless a block has too few keys.
  bool has_staged_dq() const {
    return config_.kernel.dq_reduction_steps == 3 && mask_->backward.key_tiles > 3;
  }

  KernelTraits traits() const {
    if (hardware_.kind == MachineKind::kCpu) {
      // The kernels here carry the state of the softmax from block to block: nothing to merge.
      return {false, false, hardware_.cores, 0, 0, 0, 0, 4};
    }
    if (hardware_.kind == MachineKind::kGpu) {
      // Fused passes: out 2 + 4 + 4 bytes; dq 2 + 4 + 4; dK and dV the same, and copied to send.
      return {false, false, hardware_.cores, 10, 10, 20, 4, element_bytes()};
    }
    // Passes fused by the compiler. Forward: out 2 + 2 + 4 + 4 bytes, a copy 2, lse and maximum, in
    // fp32 in all 128 lanes, written and read. Backward: dq 4 + 8, sum of out * dout 6; dK and dV
    // added and copied, 20 an element of both.
    constexpr double kLanes = 128;
    const double merge_forward = 14 + 16 * kLanes / real(model_.head_size);
    const bool staged = has_staged_dq();
    // The second core works where the grid has an independent axis: a batch, or megacore.
    const bool both = counts_.rows > 1 || config_.kernel.megacore;
    const bool balanced = run_.parallel.placement != PlacementKind::kContiguous;
    return {!staged || config_.kernel.megacore,
            !staged,
            both ? hardware_.cores : 1,
            merge_forward,
            staged ? 6.0 : 18.0,
            20,
            balanced ? 8.0 : 4.0,
            element_bytes()};
  }

  // Products with weights, of the layer and what backward computes again, and the output head.
  double linear() const {
    const double e = real(model_.embedding);
    const double queries = real(model_.query_heads * model_.head_size);
    const double keys = real(model_.kv_heads * model_.head_size);
    const double qkv = e * (queries + 2 * keys), output = queries * e;
    const double mlp_in = 2 * e * real(model_.mlp), mlp_out = e * real(model_.mlp);
    const RematConfig& remat = config_.remat;
    const double again = (remat.query_key_value ? qkv : 0) + (remat.output ? output : 0) +
                         (remat.mlp_in ? mlp_in : 0) + (remat.mlp_out ? mlp_out : 0);
    const double layer = 6 * (qkv + output + mlp_in + mlp_out) + 2 * again;
    const double head = 6 * e * real(model_.vocabulary);
    const double peak = config_.fp8_linear ? hardware_.fp8_tflops * kTera : flops_per_second();
    return real(counts_.rank_tokens) * (layers() * layer / peak + head / flops_per_second()) /
           calibration_.linear_efficiency;
  }

  // One tile of one head on one core; `products`: matrix products of 2 bq bkv D operations.
  double tile_seconds(const TileCounts& tiles, double products) const {
    const double operations =
        products * 2 * real(tiles.tile.queries * tiles.tile.keys * model_.head_size);
    const double core = flops_per_second() / real(hardware_.cores);
    return operations / (core * calibration_.attention_efficiency) +
           calibration_.tile_overhead_seconds;
  }
  double forward_tile() const { return tile_seconds(mask_->forward, 2); }
  double backward_tile() const { return tile_seconds(mask_->backward, 5); }
  // A hidden tile of a static grid: no products, but q and dout are loaded and a zero dq written.
  double idle_tile() const {
    const double bytes = real(mask_->backward.tile.queries * model_.head_size) *
                         (2 * element_bytes() + (traits_.dq_partials ? 4 : 0));
    return calibration_.tile_overhead_seconds + memory_seconds(bytes);
  }
  // Of one layer and pass, where `tiles` are those of one head and row.
  double forward_seconds(int64_t tiles) const {
    return real(tiles * counts_.head_rows) * forward_tile() / real(hardware_.cores);
  }
  double backward_seconds(int64_t tiles) const {
    return real(tiles * counts_.head_rows) * backward_tile() / real(traits_.backward_cores);
  }

  void add_attention() {
    const TileCounts &forward = mask_->forward, &backward = mask_->backward;
    add("attention forward",
        masked_layers() * forward_runs() * forward_seconds(forward.sum_of_most()));
    add("attention backward",
        masked_layers() * backward_runs() * backward_seconds(backward.sum_of_most()));
    const int64_t grid = backward.grid() * static_cast<int64_t>(backward.most.size());
    if (traits_.static_backward_grid) {
      const int64_t idle = (grid - backward.sum_of_most()) * counts_.head_rows;
      add("hidden tiles", masked_layers() * backward_runs() * real(idle) * idle_tile() /
                              real(traits_.backward_cores));
    }
    if (hardware_.kind == MachineKind::kTpu) {
      const int64_t partials = traits_.dq_partials ? grid : 3 * backward.query_tiles;
      const double bytes =
          real(partials * counts_.head_rows * backward.tile.queries * model_.head_size) * 4;
      add("dq partial sums", masked_layers() * backward_runs() * memory_seconds(bytes));
    }
  }

  // ZeRO-3: weights are gathered in forward and again in backward, gradients summed and scattered;
  // each pass writes or reads a whole tensor. Then gradients of replicas, and the optimizer.
  void add_weights() {
    const double bytes = element_bytes() * real(counts_.parameters);
    const double n = real(counts_.sharing_ranks), replicas = run_.parallel.data;
    add("weights gather", 3 * collective_seconds(bytes * (n - 1) / n, routes_.weights));
    add("weights memory", n > 1 ? 3 * memory_seconds(bytes) : 0);
    if (replicas > 1) {
      add("gradients of replicas",
          2 * collective_seconds(bytes / n * (replicas - 1) / replicas, routes_.replicas));
    }
  }

  // K and V of all ranks: gathered in forward, again in backward, dK and dV summed and scattered.
  void add_gather() {
    const TransferCounts& t = mask_->transfers;
    const double bytes = input_runs() * real(t.gather) * element_bytes() +
                         backward_runs() * real(t.reduce) * traits_.gradient_bytes;
    add("kv gather", masked_layers() * collective_seconds(bytes, routes_.gather));
    add("kv layout", masked_layers() * (input_runs() + backward_runs()) * layout_seconds());
  }
  // Gathered K and V pass through memory.
  double layout_seconds() const {
    const double whole =
        2 * real(counts_.rows * counts_.kv_heads * model_.head_size * run_.data.sequence_length) *
        element_bytes();
    return memory_seconds(traits_.layout_passes * whole);
  }

  // Queries of a rank in one ring step, in numbers.
  double ring_queries() const {
    return real(counts_.ring_block_tokens * model_.head_size * counts_.head_rows);
  }
  double merge_forward() const { return memory_seconds(traits_.merge_forward * ring_queries()); }

  void add_ring() {
    const TransferCounts& t = mask_->transfers;
    const double kv =
        2 * real(counts_.ring_block_tokens * model_.head_size * counts_.rows * counts_.kv_heads);
    const double merge_backward =
        memory_seconds(traits_.merge_backward * ring_queries() + traits_.merge_backward_kv * kv);
    const double steps = real(run_.parallel.ring_size);
    add("ring merge", masked_layers() * steps *
                          (forward_runs() * merge_forward() + backward_runs() * merge_backward));
    add("ring step", masked_layers() * steps * (forward_runs() + backward_runs()) *
                         calibration_.ring_step_seconds);

    // A hop that takes longer than the work it hides behind. Neighbours talk at full speed.
    const double hop = real(t.hop) * element_bytes() / routes_.neighbour;
    const double gradient_hop = hop + real(t.gradient_hop) * 4 / routes_.neighbour;
    double exposed = 0;
    for (size_t step = 0; step < mask_->forward.most.size(); ++step) {
      const bool sends = static_cast<int64_t>(step) < t.hops;
      const bool sends_gradient = static_cast<int64_t>(step) < t.gradient_hops;
      const double forward = forward_seconds(mask_->forward.most[step]) + merge_forward();
      const double backward = backward_seconds(mask_->backward.most[step]) + merge_backward;
      if (sends) exposed += forward_runs() * std::max(0.0, hop - forward);
      if (sends_gradient) exposed += backward_runs() * std::max(0.0, gradient_hop - backward);
    }
    add("ring exposed", masked_layers() * exposed);
  }

  // q, k and v in and out back, as often as forward runs; then dout in, and dq, dk and dv back.
  // Where only the attention is kept, q, k and v come again for the backward kernel.
  double head_exchange() const {
    const TransferCounts& t = mask_->transfers;
    const double forward =
        input_runs() * real(t.exchange_in) + forward_runs() * real(t.exchange_out);
    const double backward = real(t.exchange_gradient_in) + real(t.exchange_gradient_out);
    return collective_seconds((forward + backward_runs() * backward) * element_bytes(),
                              routes_.exchange);
  }

  void add_findings() {
    if (!routes_.finding.empty()) cost_.findings.push_back(routes_.finding);
    if (!routes_.aligned && !config_.may_split_torus) {
      cost_.findings.emplace_back(
          "MaxText refuses to split a torus axis without allow_split_physical_axes=true");
    }
    if (config_.kernel.dq_reduction_steps == 3 && !has_staged_dq() &&
        hardware_.kind == MachineKind::kTpu) {
      cost_.findings.push_back(
          fmt::format("dq_reduction_steps=3 changes nothing: a block has {} key tiles, and needs "
                      "more than 3",
                      mask_->backward.key_tiles));
    }
  }

  // Of a row and head.
  double formula_pairs(const MaskCounts& mask) const {
    const double square = std::pow(real(run_.data.sequence_length), 2);
    if (mask.share.mask.kind == MaskKind::kFull) return square;
    if (mask.share.mask.kind == MaskKind::kCausal) return square / 2;
    return real(mask.total_pairs);
  }

  // MaxText's formula: 6 operations a weight and token, causal attention halved, nothing twice.
  double model_teraflops() const {
    const double queries = real(model_.query_heads * model_.head_size);
    const double keys = real(model_.kv_heads * model_.head_size);
    const double e = real(model_.embedding);
    const double layer = 2 * e * queries + 2 * e * keys + 3 * e * real(model_.mlp);
    const double tokens =
        real(run_.data.sequence_length * run_.data.global_batch_rows) / real(counts_.ranks);
    const double linear = 6 * tokens * (layers() * layer + e * real(model_.vocabulary));
    double pairs = 0;  // of all layers
    for (const MaskCounts& mask : counts_.masks)
      pairs += formula_pairs(mask) * real(mask.share.layers);
    const double attention =
        12 * pairs * queries * real(run_.data.global_batch_rows) / real(counts_.ranks);
    return micro_batches() * (linear + attention) / kTera;
  }

  const Job& job_;
  const PlanConfig& config_;
  const RunConfig& run_;
  const ModelConfig& model_;
  const Hardware& hardware_;
  const Calibration& calibration_;
  const Counts& counts_;
  Scope scope_;
  const MaskCounts* mask_;  // of the layers at hand
  Routes routes_;
  KernelTraits traits_;
  Cost cost_;
};

}  // namespace

double Cost::step_seconds() const {
  double sum = 0;
  for (const CostItem& item : items) sum += item.seconds;
  return sum;
}

double Cost::seconds(std::string_view name) const {
  double sum = 0;
  for (const CostItem& item : items) sum += item.name == name ? item.seconds : 0;
  return sum;
}

CallParts call_parts(const Job& job, const Counts& counts, const MaskCounts& mask) {
  if (was_measured(job)) return call_parts_on_cores(job, counts, mask);
  return Estimator(job, counts, Scope::kAttentionForward).call_parts(mask);
}

Cost estimate(const Job& job, const Counts& counts, Scope scope) {
  return Estimator(job, counts, scope).estimate();
}

}  // namespace odyssey
