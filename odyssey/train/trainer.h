// SPDX-License-Identifier: Apache-2.0
// The training loop. It computes and communicates; what it has to say goes to an observer.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "odyssey/comm/group.h"
#include "odyssey/config/run_config.h"

namespace odyssey {

// Known before the first step.
struct StartReport {
  int64_t parameters = 0;
  int ranks = 0;
  std::string layout;   // "usp: ring 4 x ulysses 2, dual_chunk_swap; data 1, fsdp 1"
  std::string dataset;  // what Dataset::describe says
  std::string isa;      // of the attention kernels
  int threads_per_rank = 1;
  double teraflops_per_step = 0;  // of one rank, MaxText's formula, without recompute
  double attention_share = 0;     // of those, in [0, 1]
  int64_t bytes_held = 0;         // buffers of this process (thread ranks: of all ranks)
  // Sent in one forward and backward of one layer, mean of all ranks and layers; and what whole
  // blocks to everybody would add to that.
  int64_t attention_bytes_per_layer = 0, attention_bytes_saved_per_layer = 0;
  // Attention work of the first batch, of all layers: busiest ring rank over the mean, in all and
  // where ranks wait for each other after each hop (sequence/balance.h).
  double imbalance = 1, step_imbalance = 1;
};

// One finished step. Sums and norms are over all ranks.
struct StepReport {
  int64_t step = 0;
  double seconds = 0;
  double teraflops_per_second = 0;  // per rank
  double tokens_per_second = 0;     // per rank
  double tokens = 0;                // per rank
  // In waits of attention for other ranks, what computation did not hide; mean of all ranks.
  double seconds_waiting = 0;
  double total_weights = 0;  // tokens that count in the loss
  double loss = 0;           // sum of losses / total_weights, nats
  double perplexity = 0;
  double raw_grad_norm = 0;  // before clipping
  double grad_norm = 0;      // after clipping
  double parameter_norm = 0;
  double learning_rate = 0;
  // Largest attention score of any head and layer, if the config records it.
  std::optional<double> max_logit;
  int64_t qk_clipped_heads = 0;  // of all layers; 0 without use_qk_clip
};

struct FinishReport {
  int64_t steps = 0;
  double median_step_seconds = 0;  // without the first step where there are several
  double total_seconds = 0;
  double first_loss = 0, last_loss = 0;
  int64_t bytes_peak = 0;
};

class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void started(const StartReport&) {}
  virtual void stepped(const StepReport&) {}
  virtual void finished(const FinishReport&) {}
};

// Trains config.steps steps. Collective over `world`, whose size is config.parallel.ranks(). The
// observer is called on rank 0 only. The caller has made sure that the run fits in memory
// (memory.h). Throws RunError when the loss is not finite.
void train(const RunConfig& config, Group& world, TrainObserver& observer);

}  // namespace odyssey
