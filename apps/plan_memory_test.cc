// SPDX-License-Identifier: Apache-2.0
// What `odyssey plan` says that a rank of the trainer holds, against what ranks really hold: their
// buffers, and the resident memory of processes.
#include <string>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "apps/plan_command.h"
#include "apps/run_program.h"
#include "odyssey/base/buffer.h"
#include "odyssey/comm/mpi_group.h"
#include "odyssey/comm/thread_group.h"
#include "odyssey/plan/memory.h"
#include "odyssey/train/trainer.h"

namespace odyssey {
namespace {

using Words = std::vector<std::string>;

Words run_words(const std::string& strategy, int ring, int ulysses, const std::string& dtype) {
  return {"hardware=this-machine",
          "base_emb_dim=128",
          "base_mlp_dim=256",
          "base_num_query_heads=4",
          "base_num_kv_heads=2",
          "head_dim=32",
          "base_num_decoder_layers=2",
          "vocab_size=512",
          "max_target_length=2048",
          "per_device_batch_size=" + std::to_string(1.0 / (ring * ulysses)),
          "steps=1",
          "dataset_type=synthetic",
          "packing=false",
          "dtype=" + dtype,
          "context_parallel_strategy=" + strategy,
          "ici_context_parallelism=" + std::to_string(ring),
          "ici_context_usp_ulysses_parallelism=" + std::to_string(ulysses)};
}

double planned_bytes(const Job& job) {
  return plan_memory(job, count(job)).total();
}

TEST(PlanMemory, IsWhatRanksOfTheTrainerHold) {
  struct Alive : TrainObserver {
    void stepped(const StepReport&) override { bytes = buffer_bytes_alive(); }
    int64_t bytes = 0;
  };
  struct Case {
    const char *strategy, *dtype;
    int ring, ulysses;
  };
  for (const Case& one : {Case{"all_gather", "float32", 1, 1}, Case{"all_gather", "bfloat16", 4, 1},
                          Case{"ring", "float32", 4, 1}, Case{"ring", "bfloat16", 2, 1},
                          Case{"usp", "bfloat16", 2, 2}}) {
    SCOPED_TRACE(std::string(one.strategy) + " " + one.dtype);
    const Job job =
        make_job("configs/tiny.yml", run_words(one.strategy, one.ring, one.ulysses, one.dtype),
                 trainer_memory);
    Alive alive;
    const int64_t before = buffer_bytes_alive();
    const int ranks = job.config.run.parallel.ranks();
    run_on_threads(ranks, [&](Group& world) { train(job.config.run, world, alive); });
    EXPECT_NEAR(planned_bytes(job) * ranks / static_cast<double>(alive.bytes - before), 1, 0.1);
  }
}

// Largest resident memory of any process that was waited for.
double resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

// A small run tells what a process takes beside its buffers: code, libraries, MPI.
TEST(PlanMemory, IsWhatProcessesTakeFromTheSystem) {
  if (!mpi_available()) GTEST_SKIP() << "no MPI";
  const auto run = [](int layers, int embedding) {
    Words words = run_words("ring", 2, 1, "bfloat16");
    words[1] = "base_emb_dim=" + std::to_string(embedding);
    words[2] = "base_mlp_dim=" + std::to_string(2 * embedding);
    words[6] = "base_num_decoder_layers=" + std::to_string(layers);
    const Job job = make_job("configs/tiny.yml", words, trainer_memory);
    std::string text;
    for (size_t i = 1; i < words.size(); ++i) text += " " + words[i];
    const ProgramResult result = run_program("train configs/tiny.yml" + text, mpirun(2));
    EXPECT_EQ(result.code, 0) << result.err;
    return planned_bytes(job);
  };
  const double small = run(1, 128), small_resident = resident_bytes();
  const double large = run(4, 2048), large_resident = resident_bytes();
  EXPECT_GT(large, 20 * small);
  EXPECT_NEAR((large_resident - small_resident) / (large - small), 1, 0.1);
}

}  // namespace
}  // namespace odyssey
