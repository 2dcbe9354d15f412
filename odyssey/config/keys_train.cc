// SPDX-License-Identifier: Apache-2.0
// Keys of the optimizer, the learning rate, and of the run as a whole.
#include "odyssey/config/key_table.h"

namespace odyssey {
namespace {

constexpr Range kStepsOrMinusOne{1, 1e12, false, -1};

}  // namespace

std::vector<Key> run_keys() {
  return {
      text("run_name", "", "name of the run: its folder in base_output_directory"),
      text("base_output_directory", "", "folder for what a run writes; empty: it writes nothing"),
      text("metrics_file", "", "one line of JSON a step goes to this file; empty: none"),
      whole("steps", "150001", kStepsOrMinusOne,
            "optimizer steps; -1: learning_rate_schedule_steps"),
      whole("init_weights_seed", "0", {0, 9e18}, "seed of the first weights"),
      flag("abort_on_nan_loss", "true", "end the run when the loss is NaN"),
      flag("abort_on_inf_loss", "true", "end the run when the loss is infinite"),
      real("comm_timeout_seconds", "300.0", {0, 1e9, true},
           "Odyssey's own: longest wait for another rank, in seconds"),
      only({"false"}, "Checkpoints are not built yet: give enable_checkpointing=false.",
           flag("enable_checkpointing", "false", "checkpoints; not built yet (MaxText: true)")),
      only({""}, "Checkpoints are not built yet.",
           text("load_parameters_path", "", "checkpoint whose weights a run begins with")),
      only({""}, "Checkpoints are not built yet.",
           text("load_full_state_path", "", "checkpoint that a run goes on from")),
      only({""}, "Give the yml as the first argument, or name its base inside it.",
           text("base_config", "", "in a yml: the file whose values it builds on")),
      and_plans(
          {"minimal", "minimal_with_context", "save_dot_with_context_except_mlp",
           "save_dot_except_mlpwi", "save_dot_except_mlp", "save_qkv_proj", "save_out_proj",
           "custom"},
          only({"full"}, "Each layer is recomputed from its input in the backward pass.",
               choice("remat_policy", "full", {}, "what is recomputed in the backward pass"))),
  };
}

std::vector<Key> train_keys() {
  constexpr Range kFraction{0, 1};
  // 1 itself would never forget: the corrected moments would be 0/0.
  constexpr Range kDecay{0, 0.9999999};
  return {
      real("learning_rate", "3.0e-5", {0, 1e6}, "the highest learning rate"),
      whole("learning_rate_schedule_steps", "-1", kStepsOrMinusOne,
            "steps of warm-up and decay; -1: as many as steps"),
      real("warmup_steps_fraction", "0.1", kFraction, "part of the schedule that warms up"),
      real("learning_rate_final_fraction", "0.1", kFraction,
           "the cosine ends at this fraction of learning_rate"),
      real("adam_b1", "0.9", kDecay, "decay of the mean of the gradient"),
      real("adam_b2", "0.95", kDecay, "decay of the mean of its square"),
      real("adam_eps", "1.0e-8", {0, 1}, "added to the root"),
      real("adam_eps_root", "0.0", {0, 1}, "added under the root"),
      real("adam_weight_decay", "0.1", {0, 1e6}, "decoupled weight decay"),
      real("gradient_clipping_threshold", "1.0", {0, 1e12},
           "longest gradient (global norm); 0: no clipping"),
      flag("use_qk_clip", "false",
           "shrinks query and key weights of heads whose largest score exceeds qk_clip_threshold"),
      real("qk_clip_threshold", "100.0", {0, 1e9, true}, "of use_qk_clip: largest score allowed"),
      flag("record_max_logits", "false",
           "Odyssey's own: metrics have the largest attention score; use_qk_clip records it too"),
      only({"adamw"}, "AdamW is the only optimizer that is built.",
           choice("opt_type", "adamw", {}, "optimizer")),
      only({"cosine"}, "The cosine schedule is the only one that is built.",
           choice("lr_schedule_type", "cosine", {}, "kind of schedule")),
      only({"", "float32"}, "Moments are kept in float32.",
           choice("mu_dtype", "", {}, "first moment; empty: as weight_dtype")),
      only({"", "[]"}, "Weight decay acts on all weights.",
           text("adamw_mask", "", "weights without decay")),
      only({"0.0"}, "The z-loss is not built.",
           real("z_loss_multiplier", "0.0", {}, "weight of the z-loss")),
      only({"0.0"}, "A run ends after its steps.",
           real("target_eval_loss", "0.0", {}, "loss at which a run ends")),
      only({"false"}, "Steps are never left out.",
           flag("skip_step_on_spikes", "false", "leave out steps with a jump of the loss")),
      only({"false"}, "Pre-training only.", flag("use_dpo", "false", "preference training")),
      only({"false"}, "Pre-training only.", flag("use_sft", "false", "instruction training")),
  };
}

}  // namespace odyssey
