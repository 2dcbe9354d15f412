// SPDX-License-Identifier: Apache-2.0
#include "apps/help.h"

#include "apps/calibrate_help.h"
#include "odyssey/base/error.h"

namespace odyssey {
namespace {

constexpr std::string_view kProgram =
    R"(odyssey: train LLMs on long contexts on CPUs, with one sequence spread over many ranks

Usage: odyssey COMMAND [arguments]
  train      train a model
  check      prove on this machine that a layout equals dense attention
  attention  one attention call, files in and out
  bench      measure kernels, attention layouts and training steps on this machine
  plan       predict time and memory of a step on other machines
  calibrate  measure this machine for plan
  keys       list the configuration keys
odyssey COMMAND --help says more.

Examples:
  odyssey train configs/tiny.yml steps=20
  odyssey check configs/tiny.yml attention_type=full
  mpirun -n 8 odyssey train configs/tiny.yml
  odyssey keys context

Ranks are threads of one process, as many as the axes of the layout multiply to. Under mpirun or
srun they are the processes: same code, same numbers, same flags.

Options:
  -h, --help  this text
  --version   the version

Exit codes: 0 done, 1 failed while running, 2 bad usage, configuration or input file.
Environment:
  OMP_NUM_THREADS  OpenMP threads of each rank (default: the cores, shared evenly by the ranks)
  ODYSSEY_MAX_ISA  best kernels to use: ref, portable, avx2, avx512 or amx (default: the best)
)";

constexpr std::string_view kTrain =
    R"(odyssey train: trains a model

Usage: odyssey train CONFIG.yml [key=value ...] [options]
  CONFIG.yml  what to train: model, data, layout of the ranks
  key=value   replaces a value of the file; odyssey keys lists all keys

Prints one line a step. metrics_file=FILE writes all numbers too, a line of JSON a step; a file that
is there is emptied. There are no checkpoints yet, so nothing goes to base_output_directory.

Example:
  odyssey train configs/tiny.yml steps=20 metrics_file=metrics.jsonl

Options:
  --ranks N                 ranks to run; an axis of -1 takes what is left (default: as many as the
                            axes multiply to)
  --comm auto|threads|mpi   what ranks are (default auto: processes under mpirun or srun, else
                            threads)
  -h, --help                this text
Environment:
  ODYSSEY_FAULT_DRILL=KIND:RANK:STEP  makes a rank throw, kill itself or hang in a step (KIND throw,
                                      kill or hang), to see that the run ends on all ranks
)";

constexpr std::string_view kCheck =
    R"(odyssey check: proves on this machine that a layout equals dense attention

Usage: odyssey check [CONFIG.yml] [key=value ...] [options]
  CONFIG.yml  the run whose layout, heads and data type are checked (default: all defaults)
  key=value   replaces a value of the file; odyssey keys lists all keys

First proves the schedule: every visible pair of query and key exactly once, and no rank waits for
ever. Then runs attention forward and backward on random numbers, with the masks of all layers,
packed documents, sliding window, chunks, soft cap and lengths that do not divide, with sinks where
the model has them, and compares every result with dense attention in fp64. Sequences are short: at
most 512 tokens or so. Exit code 1 if a case fails.

Example:
  odyssey check configs/tiny.yml ici_context_parallelism=2 \
          ici_context_usp_ulysses_parallelism=4

Options:
  --ranks N                 ranks to run; an axis of -1 takes what is left (default: as many as the
                            axes multiply to)
  --comm auto|threads|mpi   what ranks are (default auto: processes under mpirun or srun, else
                            threads)
  -h, --help                this text
)";

constexpr std::string_view kAttention =
    R"(odyssey attention: one attention call, files in and out

Usage: odyssey attention --input FILE --output FILE [key=value ...] [options]
  --input FILE   safetensors, in natural token order: query [B, S, H, D]; key, value [B, S, K, D];
                 optional dout [B, S, H, D] (then backward runs too), segment_ids [B, S] (integers,
                 0 is padding), sinks [H]. Numbers are F32, F64, F16 or BF16.
  --output FILE  safetensors, all F32: out [B, S, H, D]; lse [B, H, S]; max_logits [H]; with dout
                 also dquery, dkey, dvalue, and dsinks with sinks
  key=value      layout, mask and data type, as in training:
                   context_parallel_strategy, ici_context_parallelism,
                   ici_context_usp_ulysses_parallelism, context_parallel_load_balance,
                   context_parallel_reorder_strategy, dtype (default bfloat16), attention_type,
                   sliding_window_size, chunk_attn_window_size, attn_logits_soft_cap,
                   attention_scale
                 odyssey keys tells what they mean.

Example:
  odyssey attention --input q.safetensors --output o.safetensors dtype=float32 \
          context_parallel_strategy=usp ici_context_parallelism=2 \
          ici_context_usp_ulysses_parallelism=2

Options:
  --ranks N                 ranks to run; an axis of -1 takes what is left (default: as many as the
                            axes multiply to)
  --comm auto|threads|mpi   what ranks are (default auto: processes under mpirun or srun, else
                            threads)
  -h, --help                this text
)";

constexpr std::string_view kBench =
    R"(odyssey bench: measures how fast this machine is

Usage: odyssey bench kernel [SET ...] [options]
       odyssey bench attention [key=value ...] [options]
       odyssey bench step CONFIG.yml [key=value ...] [options]
       odyssey bench plan FILE.yml [key=value ...] [options]
  kernel     each kernel alone, and its share of the live peak
  attention  one attention call on every layout of some ranks, against one dense rank
  step       training steps on every layout of some ranks, at several lengths
  plan       attention calls beside what odyssey plan predicts for them
odyssey bench kernel --help says more, and so on. docs/performance.md says how to read the tables.

Example:
  odyssey bench kernel small

Options:
  --json FILE  also writes each row as a line of JSON; a file that is there is emptied
  -h, --help   this text
)";

constexpr std::string_view kBenchAttention =
    R"(odyssey bench attention: what each layout of the ranks costs

Usage: odyssey bench attention [key=value ...] [options]
  key=value  shape, mask and data type: base_num_query_heads (default 32), base_num_kv_heads (8),
             head_dim (128), dtype (bfloat16), attention_type (global, which is causal),
             sliding_window_size, chunk_attn_window_size, attn_logits_soft_cap, attention_scale,
             comm_timeout_seconds

Runs attention forward and backward on random numbers, one sequence, on every layout: all_gather,
ring, ulysses and every R x U of usp. Each rank has one thread. The rows take turns, and each is
held against one dense rank. Ranks are threads, or the processes of mpirun; rows of fewer ranks than
there are processes leave the others idle. The default takes some minutes on two cores.
docs/performance.md says how to read each column.

Example:
  odyssey bench attention attention_type=local_sliding sliding_window_size=1024 \
          --lengths 8192 --ranks 2,4

Options:
  --ranks LIST              numbers of ranks, such as 1,2,4,8 (default: 8 threads, or all processes)
  --lengths LIST            lengths of the sequence (default 16384)
  --strategies LIST         of all_gather, ring, ulysses, usp (default: all)
  --placements LIST         of contiguous, dual_chunk_swap, striped, per_document (default: the
                            first two)
  --documents N             packs N documents of random lengths in the sequence (default 1)
  --repeats N               runs of each row (default 3)
  --json FILE               also writes each row as a line of JSON; a file that is there is emptied
  --comm auto|threads|mpi   what ranks are (default auto: processes under mpirun or srun, else
                            threads)
  -h, --help                this text
)";

constexpr std::string_view kBenchStep =
    R"(odyssey bench step: training steps on every layout of the ranks

Usage: odyssey bench step CONFIG.yml [key=value ...] [options]
  CONFIG.yml  what to train: model and data; its layout, length and batch are not used
  key=value   replaces a value of the file; odyssey keys lists all keys

Trains for some steps on one sequence at a time on every layout: all_gather, ring, ulysses and every
R x U of usp, with and without balance. Prints a markdown table of median step seconds, a row a
layout and a column a length. docs/performance.md says how to read it.

Example:
  odyssey bench step configs/tiny.yml --ranks 4 --lengths 4096,8192

Options:
  --ranks N                 ranks (default: 8 threads, or all processes)
  --lengths LIST            values of max_target_length (default: that of the configuration)
  --strategies LIST         of all_gather, ring, ulysses, usp (default: all)
  --placements LIST         of contiguous, dual_chunk_swap, striped, per_document (default: the
                            first two)
  --steps N                 steps that count in each run, after one that warms up (default 3)
  --repeats N               runs of each cell, the table by turns (default 1)
  --json FILE               also writes each cell as a line of JSON; a file that is there is emptied
  --comm auto|threads|mpi   what ranks are (default auto: processes under mpirun or srun, else
                            threads)
  -h, --help                this text
)";

constexpr std::string_view kBenchKernel =
    R"(odyssey bench kernel: measures how fast the kernels are on this machine

Usage: odyssey bench kernel [SET ...] [options]
  SET  a file of problems, or the name of one in bench/sets without its .txt
       (default: attention matmul elementwise, which take many minutes; small is quick)

Calls each kernel on random numbers, first to warm up and then for a second, in 3 to 31 runs of
20 ms or one call. Prints the median, the TFLOP/s, and their share of the live peak: what this
machine does at most with all operands in registers, measured in the same process before, between
and after. For bf16 that is the peak of AMX where there is AMX, else like fp32 the one of the
vectors in use. Kernels that compute little are held to the speed of a copy of as many bytes.
docs/performance.md says more.

A line of a set is one problem; # starts a comment:
  attention     forward|backward  bf16|fp32  causal|full  BATCH SEQUENCE HEADS KV_HEADS HEAD_DIM
  matmul        forward|backward_input|backward_weight  bf16|fp32  T N K
  rms_norm      forward|backward  bf16|fp32  ROWSxWIDTH
  rope          forward|backward  bf16|fp32  ROWSxWIDTH   (heads of 128)
  swiglu        forward|backward  bf16|fp32  ROWSxWIDTH
  cross_entropy forward|backward  bf16|fp32  ROWSxWIDTH   (backward: loss and gradient)
  adamw         step              fp32       ROWSxWIDTH

Example:
  odyssey bench kernel small --threads 1 --json small.jsonl

Options:
  --json FILE       also writes each row as a line of JSON; a file that is there is emptied
  --threads LIST    numbers of threads that take turns, such as 1,2 (default: OMP_NUM_THREADS, or
                    the cores)
  --seconds S       for how long to repeat each problem (default 1)
  --clock wall|cpu  what time to take (default wall). cpu, for one thread, counts only what the
                    thread really ran: for machines that others use at the same time
  -h, --help        this text
)";

constexpr std::string_view kPlan =
    R"(odyssey plan: ranks the layouts of a machine by predicted time and memory of a training step

Usage: odyssey plan [CONFIG.yml] [key=value ...] [--top N] [--json FILE] [--svg FOLDER]
       odyssey plan --validate [TABLE.yml ...]
       odyssey plan --cross-validate [TABLE.yml ...]
       odyssey plan --fit TABLE.yml ... [--output FILE]
  CONFIG.yml, key=value  the run, as in training; its ranks are the chips of the machine
  hardware=NAME          the machine: a file of configs/hardware without its .yml, or a file of your
                         own that ends in .yml
  hardware.FIELD=VALUE   another value of a field of that file
  TABLE.yml              measured steps (default: all of configs/validation)

Prices every layout of the machine's chips for this run: strategy, ring x Ulysses, placement,
data x fsdp. Prints the fastest, with > the one that the flags choose, and why the first wins; then
each part of the step of the flags' layout, what single changes would bring, and how far to believe
it all.
Keys that steer TPU kernels and recomputing count too: sa_block_q, sa_block_kv, sa_block_q_dkv,
sa_block_kv_dkv, dq_reduction_steps, sa_bwd_dkv_megacore, remat_policy. docs/planner.md derives the
model and describes the files.

Example:
  odyssey plan hardware=tpu-v5p-64 model_name=llama3-8b per_device_batch_size=0.015625 \
          max_target_length=262144 context_parallel_strategy=usp ici_context_parallelism=16 \
          ici_context_usp_ulysses_parallelism=4

Options:
  --top N           layouts in the table and in the chart (default 20)
  --json FILE       also write all layouts, with their items, to this file
  --svg FOLDER      also draw lengths.svg (step against length), timeline.svg (one attention call of
                    the flags' layout, every rank) and timeline-best.svg (of the first)
  --validate        compare predictions with measured tables: error of each step, order of pairs,
                    and what the choice of the model costs
  --cross-validate  predict each cell by constants that were fitted without it, and usp cells by
                    constants fitted on all others
  --fit             fit the constants of a family of chips to tables, and print them as a file
  --output FILE     with --fit: write them to this file
  -h, --help        this text
)";

constexpr std::string_view kKeys =
    R"(odyssey keys: lists the configuration keys

Usage: odyssey keys [WORD]
  WORD  only keys with this word in their name or help (default: all keys)

Each line: name, type, default, effect, meaning. Effect is used, fixed (only the values named are
built), plan only (changes what odyssey plan predicts, and nothing in a run) or no effect (accepted,
since MaxText has it, but nothing here depends on it). configs/base.yml holds the same list with
comments.

Example:
  odyssey keys window

Options:
  -h, --help  this text
)";

}  // namespace

std::string_view help_text(std::string_view command, std::string_view kind) {
  if (command.empty()) return kProgram;
  if (command == "train") return kTrain;
  if (command == "check") return kCheck;
  if (command == "attention") return kAttention;
  if (command == "bench") {
    if (kind == "kernel") return kBenchKernel;
    if (kind == "attention") return kBenchAttention;
    if (kind == "plan") return kBenchPlanHelp;
    return kind == "step" ? kBenchStep : kBench;
  }
  if (command == "plan") return kPlan;
  if (command == "calibrate") return kCalibrateHelp;
  ODYSSEY_CHECK(command == "keys", "command {}", command);
  return kKeys;
}

}  // namespace odyssey
