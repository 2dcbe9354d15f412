// SPDX-License-Identifier: Apache-2.0
// Keys of MaxText that steer TPU and GPU kernels, the compiler, cloud services or logging. They
// change no number that a run computes, so they are accepted, type-checked and named in one note.
// Some change the time of a step there: these are for `odyssey plan` only.
// Keys that change numbers never stand here: they are used, or refused.
#include "odyssey/config/key_table.h"

namespace odyssey {
namespace {

using Names = std::initializer_list<const char*>;

void add_flags(std::vector<Key>& keys, std::string_view help, std::string_view value, Names names) {
  for (const char* name : names) keys.push_back(flag(name, std::string(value), std::string(help)));
}

void add_texts(std::vector<Key>& keys, std::string_view help, std::string_view value, Names names) {
  for (const char* name : names) keys.push_back(text(name, std::string(value), std::string(help)));
}

void add_numbers(std::vector<Key>& keys, std::string_view help, std::string_view value,
                 KeyType type, Names names) {
  for (const char* name : names) {
    keys.push_back(make_key(type, name, std::string(value), std::string(help)));
  }
}

void add_kernel_keys(std::vector<Key>& keys) {
  constexpr std::string_view kHelp = "tuning of a TPU or GPU kernel";
  keys.push_back(whole("ring_scan_unroll", "1", {0, 1e9}, "unrolling of the ring loop"));
  keys.push_back(plan_only(whole("dq_reduction_steps", "0", {0, 1e9},
                                 "TPU backward kernel: partial sums of dq; 0: one a key block")));
  add_flags(keys, kHelp, "false",
            {"use_tokamax_splash", "use_jax_splash", "use_splash_scheduler", "use_tokamax_gmm",
             "sa_use_fused_bwd_kernel", "optimize_mesh_for_tpu_v6e", "vocab_tiling_ag_once",
             "fused_qkv", "fused_mlp", "reshape_q", "use_iota_embed"});
  add_flags(keys, kHelp, "true", {"sa_use_base2_exp", "sa_fuse_reciprocal"});
  keys.push_back(plan_only(
      flag("sa_bwd_dkv_megacore", "false", "TPU backward kernel: on both cores of a chip")));
  keys.push_back(plan_only(
      flag("allow_split_physical_axes", "false", "an axis of ranks may cut an axis of the torus")));
  for (const char* name : {"sa_block_q", "sa_block_kv", "sa_block_q_dkv", "sa_block_kv_dkv"}) {
    keys.push_back(plan_only(
        whole(name, "512", {1, 2'000'000'000}, "TPU kernel: queries or keys of one grid step")));
  }
  add_numbers(
      keys, kHelp, "512", KeyType::kInt,
      {"sa_block_kv_compute", "sa_block_kv_dkv_compute", "sa_block_q_dq", "sa_block_kv_dq"});
  add_numbers(keys, kHelp, "None", KeyType::kOptionalInt,
              {"local_sa_block_q", "local_sa_block_kv", "local_sa_block_kv_compute",
               "local_sa_block_q_dkv", "local_sa_block_kv_dkv", "local_sa_block_kv_dkv_compute",
               "local_sa_block_q_dq", "local_sa_block_kv_dq"});
  add_numbers(keys, kHelp, "-1", KeyType::kInt,
              {"use_max_logit_estimate", "cost_estimate_flops_fwd", "cost_estimate_flops_bwd"});
  add_texts(keys, kHelp, "HEAD_DIM_MINOR", {"sa_q_layout", "sa_k_layout", "sa_v_layout"});
  for (const char* name : {"context", "mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo", "query_proj",
                           "key_proj", "value_proj", "qkv_proj", "out_proj"}) {
    keys.push_back(plan_only(
        text(name, "remat", "device: the backward pass keeps it where remat_policy=custom")));
  }
  add_texts(keys, "what the backward pass keeps where remat_policy=custom", "remat",
            {"decoder_layer_input"});
}

void add_compiler_keys(std::vector<Key>& keys) {
  constexpr std::string_view kHelp = "JAX and its compiler";
  add_flags(keys, kHelp, "true",
            {"scan_layers", "pure_nnx", "enable_nnx", "skip_jax_distributed_system"});
  add_flags(keys, kHelp, "false",
            {"force_unroll", "dump_hlo", "check_vma", "parameter_memory_host_offload",
             "optimizer_memory_host_offload", "shard_optimizer_over_data"});
  add_texts(keys, kHelp, "",
            {"compile_topology", "jax_cache_dir", "compiled_trainstep_file", "libtpu_init_args",
             "dump_hlo_local_dir"});
  add_texts(keys, kHelp, "auto", {"shard_mode"});
  keys.push_back(
      plan_only(text("hardware", "tpu", "machine of odyssey plan: a file of configs/hardware")));
  add_texts(keys, kHelp, "default", {"matmul_precision", "custom_mesh_and_rule_for_eval"});
  add_numbers(keys, kHelp, "1", KeyType::kInt, {"param_scan_axis"});
  add_numbers(keys, kHelp, "0.02", KeyType::kFloat, {"sharding_tolerance"});
  add_flags(keys, "asks for float32 where this code has it anyway", "false",
            {"activations_in_float32", "logits_dot_in_fp32", "float32_qk_product", "float32_logits",
             "float32_weight_sum"});
  keys.push_back(flag("enable_dropout", "true", "switch of dropout_rate, which is 0 here"));
  keys.push_back(whole("max_position_embeddings", "163840", {1, 1e12}, "of yarn scaling"));
  keys.push_back(whole("original_max_position_embeddings", "4096", {1, 1e12}, "of yarn scaling"));
}

void add_logging_keys(std::vector<Key>& keys) {
  constexpr std::string_view kHelp = "MaxText's profiling, logging and cloud services";
  add_texts(
      keys, kHelp, "",
      {"profiler", "tensorboard_dir", "vertex_tensorboard_project", "vertex_tensorboard_region"});
  add_flags(keys, kHelp, "true",
            {"enable_tensorboard", "log_config", "enable_goodput_recording", "monitor_goodput",
             "profile_cleanly"});
  add_flags(
      keys, kHelp, "false",
      {"gcs_metrics", "save_config_to_gcs", "use_vertex_tensorboard", "upload_all_profiler_results",
       "collect_stack_trace", "stack_trace_to_cloud", "report_heartbeat_metric_for_gcp_monitoring",
       "report_performance_metric_for_gcp_monitoring", "enable_checkpoint_cloud_logger"});
  add_numbers(keys, kHelp, "100", KeyType::kInt, {"log_period"});
  add_numbers(keys, kHelp, "1", KeyType::kInt, {"skip_first_n_steps_for_profiler"});
  add_numbers(keys, kHelp, "5", KeyType::kInt, {"profiler_steps"});
  add_numbers(keys, kHelp, "-1", KeyType::kInt, {"profile_periodically_period"});
  add_numbers(keys, kHelp, "30", KeyType::kInt, {"goodput_upload_interval_seconds"});
  add_numbers(keys, kHelp, "600", KeyType::kInt, {"stack_trace_interval_seconds"});
  add_numbers(keys, kHelp, "0", KeyType::kInt, {"record_internal_nn_metrics"});
}

void add_checkpoint_and_data_keys(std::vector<Key>& keys) {
  constexpr std::string_view kCheckpoint = "of checkpoints, which are not built yet";
  add_flags(keys, kCheckpoint, "true",
            {"async_checkpointing", "save_checkpoint_on_completion", "checkpoint_storage_use_ocdbt",
             "checkpoint_storage_use_zarr3"});
  add_flags(keys, kCheckpoint, "false",
            {"enable_single_replica_ckpt_restoring", "enable_emergency_checkpoint",
             "enable_continuous_checkpointing", "force_resume"});
  add_numbers(keys, kCheckpoint, "10000", KeyType::kInt, {"checkpoint_period"});
  add_numbers(keys, kCheckpoint, "None", KeyType::kOptionalInt, {"max_num_checkpoints_to_keep"});
  constexpr std::string_view kData = "of data sets that are not built here";
  add_texts(
      keys, kData, "",
      {"dataset_path", "dataset_name", "eval_dataset_name", "tokenizer_path", "tokenizer_type",
       "hf_path", "hf_name", "hf_data_dir", "hf_train_files", "grain_train_files",
       "grain_file_type", "train_split", "eval_split", "train_data_columns", "eval_data_columns"});
  add_flags(keys, kData, "true",
            {"tokenize_train_data", "tokenize_eval_data", "add_bos", "add_eos"});
  add_numbers(keys, kData, "1", KeyType::kInt, {"grain_worker_count"});
  add_numbers(keys, "evaluation inside a run is not built", "-1", KeyType::kInt, {"eval_steps"});
}

}  // namespace

std::vector<Key> no_effect_keys() {
  std::vector<Key> keys;
  add_kernel_keys(keys);
  add_compiler_keys(keys);
  add_logging_keys(keys);
  add_checkpoint_and_data_keys(keys);
  for (Key& key : keys) {
    if (key.effect != KeyEffect::kPlan) key.effect = KeyEffect::kNone;
  }
  return keys;
}

}  // namespace odyssey
