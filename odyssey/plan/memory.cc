// SPDX-License-Identifier: Apache-2.0
#include "odyssey/plan/memory.h"

#include <algorithm>

namespace odyssey {
namespace {

double real(int64_t number) {
  return static_cast<double>(number);
}

// What the policy keeps of each token and layer beside the layer's input, in numbers.
double kept_numbers(const ModelConfig& model, const RematConfig& remat) {
  const double queries = real(model.query_heads * model.head_size);
  const double keys = real(model.kv_heads * model.head_size);
  double kept = 0;
  if (!remat.query_key_value) kept += queries + 2 * keys;
  if (!remat.attention) kept += queries;
  if (!remat.output) kept += real(model.embedding);
  if (!remat.mlp_in) kept += 2 * real(model.mlp);
  if (!remat.mlp_out) kept += real(model.embedding);
  return kept;
}

}  // namespace

double PlanMemory::total() const {
  return state + layer_inputs + weights + std::max(logits, activations + attention + dq_partials);
}

PlanMemory plan_memory(const Job& job, const Counts& counts) {
  const RunConfig& run = job.config.run;
  const ModelConfig& model = run.model;
  const double bytes = model.data_type == DataType::kFloat32 ? 4 : 2;
  const double tokens = real(counts.rank_tokens);
  const double embedding = real(model.embedding), head = real(model.head_size);
  const double queries = real(model.query_heads) * head, keys = real(model.kv_heads) * head;
  PlanMemory memory;
  if (job.hardware.kind == MachineKind::kCpu && job.trainer_memory) {
    const RankBytes own = job.trainer_memory(run);
    memory.state = own.state;
    memory.weights = own.weights;
    memory.activations = own.activations;
    return memory;
  }
  memory.state = 12 * real(counts.parameters) / real(counts.sharing_ranks);
  memory.layer_inputs =
      real(model.layers) * tokens * (embedding + kept_numbers(model, job.config.remat)) * bytes;
  const double head_weights = (model.tied_head ? 1 : 2) * real(model.vocabulary) * embedding;
  const double layer_weights = (real(counts.parameters) - head_weights) / real(model.layers);
  memory.weights = 2 * layer_weights * bytes;
  memory.logits = tokens * real(model.vocabulary) * 4 / real(run.vocabulary_tiles);
  // Inputs and gradients of norm, q, k, v, out, and both halves of the MLP.
  memory.activations =
      2 * tokens * (2 * embedding + 2 * queries + 2 * keys + 3 * real(model.mlp)) * bytes;
  const bool ring = run.parallel.ring_size > 1;
  const double block = real(counts.ring_block_tokens * counts.rows) * head;
  if (ring && run.parallel.outer_gather) {
    memory.attention = 2 * 2 * real(counts.rows * run.data.sequence_length) * keys * bytes;
  } else if (ring) {
    // K and V twice, dK and dV twice in fp32; out, lse and maximum in fp32.
    const double kv = 2 * block * real(counts.kv_heads);
    memory.attention = kv * (2 * bytes + 8) + 12 * block * real(counts.head_rows / counts.rows);
  }
  if (job.hardware.kind == MachineKind::kTpu) {
    // The grid has the same tiles whatever the mask hides.
    const TileCounts& backward = counts.masks.front().backward;
    const bool staged = job.config.kernel.dq_reduction_steps == 3 && backward.key_tiles > 3;
    const double partials = staged ? 3 : real(backward.key_tiles);
    memory.dq_partials = partials * 4 * head * real(backward.query_tiles * backward.tile.queries) *
                         real(counts.head_rows);
  }
  return memory;
}

}  // namespace odyssey
