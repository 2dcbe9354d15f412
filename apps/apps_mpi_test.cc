// SPDX-License-Identifier: Apache-2.0
// The program under mpirun: the numbers of thread ranks, one message, one exit code.
#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "apps/json_rows.h"
#include "apps/run_program.h"
#include "odyssey/base/random.h"
#include "odyssey/io/safetensors.h"
#include "odyssey/io/test_folder.h"

namespace odyssey {
namespace {

using testing::HasSubstr;

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// B 2, S 19, H 4, K 2, D 8, with dout and documents.
void write_input(const std::string& path) {
  const auto normal = [](int64_t size, uint64_t stream) {
    std::vector<float> values;
    const Random random(1, stream);
    for (int64_t i = 0; i < size; ++i) {
      values.push_back(static_cast<float>(random.normal(static_cast<uint64_t>(i))));
    }
    return values;
  };
  const std::vector<float> query = normal(2 * 19 * 4 * 8, 1), key = normal(2 * 19 * 2 * 8, 2),
                           value = normal(2 * 19 * 2 * 8, 3), dout = normal(2 * 19 * 4 * 8, 4),
                           sinks = normal(4, 5);
  std::vector<int32_t> segments(2 * 19, 1);
  for (int i = 7; i < 15; ++i) segments[i] = 2;
  for (int i = 33; i < 38; ++i) segments[i] = 0;
  write_safetensors(path, std::vector<TensorToWrite>{
                              {"query", StoredType::kF32, {2, 19, 4, 8}, query.data()},
                              {"key", StoredType::kF32, {2, 19, 2, 8}, key.data()},
                              {"value", StoredType::kF32, {2, 19, 2, 8}, value.data()},
                              {"dout", StoredType::kF32, {2, 19, 4, 8}, dout.data()},
                              {"sinks", StoredType::kF32, {4}, sinks.data()},
                              {"segment_ids", StoredType::kI32, {2, 19}, segments.data()}});
}

// Thread ranks are held against dense attention elsewhere; processes must give the same bits.
TEST(Mpi, AttentionGivesTheBitsOfThreadRanks) {
  const TestFolder folder;
  write_input(folder.path("in"));
  const std::string files = "attention --input " + folder.path("in") + " --output " + folder.path();
  for (int ranks : {2, 4}) {
    const std::string half = std::to_string(ranks / 2), all = std::to_string(ranks);
    for (const std::string& words :
         {"context_parallel_strategy=usp ici_context_parallelism=" + half +
              " ici_context_usp_ulysses_parallelism=2 dtype=float32",
          "context_parallel_strategy=all_gather ici_context_parallelism=" + all,
          "context_parallel_strategy=ring ici_context_parallelism=-1 ici_fsdp_parallelism=1 "
          "--ranks " +
              all}) {
      const ProgramResult threads = run_program(files + "/threads " + words);
      const ProgramResult processes = run_program(files + "/processes " + words, mpirun(ranks));
      ASSERT_EQ(threads.code, 0) << threads.err;
      ASSERT_EQ(processes.code, 0) << processes.err;
      EXPECT_EQ(count(processes.out, "attention: "), 1) << processes.out;
      const SafetensorsFile a(folder.path("threads")), b(folder.path("processes"));
      ASSERT_EQ(a.tensors().size(), 7U);
      for (const StoredTensor& tensor : a.tensors()) {
        EXPECT_EQ(a.read_floats(tensor.name), b.read_floats(tensor.name)) << tensor.name << words;
      }
    }
  }
}

// Ring and Ulysses over two nodes each, hosts simulated: the order of the ranks changes, their
// numbers do not.
TEST(Mpi, NodesGiveTheSameBitsAndAreChecked) {
  const TestFolder folder;
  write_input(folder.path("in"));
  const std::string files = "attention --input " + folder.path("in") + " --output " + folder.path();
  const std::string usp = " context_parallel_strategy=usp dtype=float32 ";
  const std::string nodes =
      usp + "dcn_context_parallelism=2 dcn_context_usp_ulysses_parallelism=2 ";
  const ProgramResult plain = run_program(
      files + "/plain" + usp + "ici_context_parallelism=2 ici_context_usp_ulysses_parallelism=2");
  ASSERT_EQ(plain.code, 0) << plain.err;
  const ProgramResult threads = run_program(files + "/threads" + nodes);
  ASSERT_EQ(threads.code, 0) << threads.err;
  const ProgramResult processes =
      run_program(files + "/processes" + nodes, "ODYSSEY_RANKS_PER_NODE=1 " + mpirun(4));
  ASSERT_EQ(processes.code, 0) << processes.err;
  const SafetensorsFile a(folder.path("plain")), b(folder.path("threads")),
      c(folder.path("processes"));
  for (const StoredTensor& tensor : a.tensors()) {
    EXPECT_EQ(a.read_floats(tensor.name), b.read_floats(tensor.name)) << tensor.name;
    EXPECT_EQ(a.read_floats(tensor.name), c.read_floats(tensor.name)) << tensor.name;
  }
  const std::string two_nodes =
      usp + "dcn_context_parallelism=2 ici_context_usp_ulysses_parallelism=2";
  const ProgramResult one_host = run_program(files + "/no" + two_nodes, mpirun(4));
  EXPECT_EQ(one_host.code, 2);
  EXPECT_EQ(count(one_host.err,
                  "odyssey: error: dcn_context_parallelism x dcn_context_usp_ulysses_parallelism: "
                  "expected 2 hosts with 2 neighbouring ranks each, got 1 host: ranks 0-3. Start 2 "
                  "on each host, in order (mpirun --map-by ppr:2:node), or change the axes."),
            1)
      << one_host.err;
  // Hosts of three ranks: the ranks of a node are apart. Thread ranks hear it too.
  for (const std::string& start : {mpirun(4), std::string()}) {
    const ProgramResult apart =
        run_program(files + "/no" + two_nodes, "ODYSSEY_RANKS_PER_NODE=3 " + start);
    EXPECT_EQ(apart.code, 2);
    EXPECT_EQ(count(apart.err, "got 2 hosts: ranks 0-2; ranks 3."), 1) << apart.err;
  }
  const ProgramResult word = run_program(files + "/no" + nodes, "ODYSSEY_RANKS_PER_NODE=two ");
  EXPECT_EQ(word.code, 2);
  EXPECT_EQ(count(word.err, "ODYSSEY_RANKS_PER_NODE: expected a whole number from 1"), 1)
      << word.err;
}

// Of use only where a library is loaded that makes them so; then it must have been there.
TEST(Mpi, SendsAreSynchronousWhereAskedFor) {
  if (std::getenv("ODYSSEY_TEST_PRELOAD") == nullptr) GTEST_SKIP();
  const ProgramResult result = run_program(
      "check configs/tiny.yml max_target_length=60 ici_context_parallelism=2 "
      "per_device_batch_size=1",
      mpirun(4));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(count(result.err, "synchronous sends: "), 4) << result.err;
}

TEST(Mpi, CheckProvesALayout) {
  const ProgramResult result = run_program(
      "check configs/tiny.yml max_target_length=60 ici_context_parallelism=2 "
      "per_device_batch_size=1",
      mpirun(4));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(count(result.out, "cases equal dense attention"), 1) << result.out;
}

TEST(Mpi, AUserErrorIsPrintedOnce) {
  for (const std::string arguments :
       {"trian", "train", "train nope.yml", "check --ranks 3", "check --comm threads",
        "attention --input /nope --output /tmp/x", "bench", "bench attention --ranks 3",
        "bench step configs/tiny.yml --ranks 3", "bench attention --json /nowhere/x",
        "train configs/tiny.yml ici_context_parallelism=1 per_device_batch_size=1 "
        "dataset_type=synthetic max_target_length=64 steps=1 metrics_file=/nowhere/x"}) {
    const ProgramResult result = run_program(arguments, mpirun(2));
    EXPECT_EQ(result.code, 2) << arguments << result.err;
    EXPECT_EQ(count(result.err, "odyssey: error: "), 1) << arguments << result.err;
  }
}

TEST(Mpi, HelpIsPrintedOnce) {
  const ProgramResult result = run_program("--help", mpirun(2));
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(count(result.out, "Usage:"), 1);
}

TEST(Mpi, RanksWithOtherConfigurationsFailTogether) {
  const std::string words =
      "context_parallel_strategy=ring ici_context_parallelism=2 per_device_batch_size=1 "
      "max_target_length=16 ";
  // The program comes last on the line, so it is the second of the two.
  const ProgramResult result =
      run_program("check " + words + "steps=4",
                  mpirun(1) + " '" ODYSSEY_PROGRAM "' check " + words + "steps=3 : -n 1");
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_EQ(count(result.err, "odyssey: error: configuration: expected the same on all 2 ranks"), 1)
      << result.err;
}

const std::string kTrain =
    "train configs/tiny.yml ici_context_parallelism=1 per_device_batch_size=1 "
    "dataset_type=synthetic "
    "max_target_length=64 steps=3 ";

TEST(Mpi, TrainsLikeThreadRanks) {
  const TestFolder folder;
  const ProgramResult result = run_program(kTrain, mpirun(2));
  ASSERT_EQ(result.code, 0) << result.err;
  const ProgramResult threads = run_program(kTrain);
  const auto losses = [](const std::string& out) {
    std::vector<std::string> found;
    for (size_t at = out.find("loss: "); at != std::string::npos; at = out.find("loss: ", at + 1)) {
      found.push_back(out.substr(at, out.find('\n', at) - at));
    }
    return found;
  };
  EXPECT_EQ(losses(result.out).size(), 3U) << result.out;
  EXPECT_EQ(losses(result.out), losses(threads.out));
}

TEST(Mpi, AFailingRankEndsAllAndIsNamed) {
  const ProgramResult result =
      run_program(kTrain, "ODYSSEY_FAULT_DRILL=throw:1:1 timeout 20 " + mpirun(2));
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("odyssey: [rank 1 of 2] fault drill in step 1\n"));
}

TEST(Mpi, ALostRankIsNoticed) {
  const ProgramResult result = run_program(kTrain + "comm_timeout_seconds=1",
                                           "ODYSSEY_FAULT_DRILL=hang:1:1 timeout 20 " + mpirun(2));
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("odyssey: [rank 0 of 2] "));
  EXPECT_THAT(result.err, HasSubstr("from rank 1"));
}

// Same rows, same bytes; what threads count is held against the schedule elsewhere.
TEST(Mpi, BenchAttentionCountsLikeThreadRanks) {
  const TestFolder folder;
  const std::string words =
      "bench attention base_num_query_heads=6 base_num_kv_heads=2 head_dim=16 --lengths 67 "
      "--repeats 1 --ranks 2,4 --json " +
      folder.path();
  const ProgramResult threads = run_program(words + "/threads");
  const ProgramResult processes = run_program(words + "/processes", mpirun(4));
  ASSERT_EQ(threads.code, 0) << threads.err;
  ASSERT_EQ(processes.code, 0) << processes.err;
  EXPECT_EQ(count(processes.out, "attention, forward and backward"), 1) << processes.out;
  std::vector<Row> a = read_rows(folder.path("threads")), b = read_rows(folder.path("processes"));
  for (std::vector<Row>* rows : {&a, &b}) {
    std::erase_if(*rows, [](const Row& row) { return row.number("threads") > 1; });
  }
  ASSERT_EQ(a.size(), 13U);
  ASSERT_EQ(b.size(), a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(b[i].line());
    EXPECT_EQ(b[i].text("engine"), "mpi");
    for (const char* key : {"strategy", "placement"}) EXPECT_EQ(a[i].text(key), b[i].text(key));
    for (const char* key : {"ranks", "ring", "ulysses", "bytes_sent_mean", "bytes_sent_most",
                            "bytes_saved_mean", "work_imbalance"}) {
      EXPECT_EQ(a[i].number(key), b[i].number(key)) << key;
    }
    EXPECT_GT(b[i].number("cpu_overhead"), 0);
    EXPECT_EQ(b[i].number("waiting_seconds_mean") > 0, b[i].number("ranks") > 1);
  }
}

TEST(Mpi, BenchStepTrainsOnSomeOfTheProcesses) {
  const TestFolder folder;
  const std::string words =
      "bench step configs/tiny.yml dataset_type=synthetic --lengths 32 --strategies ring --steps "
      "1 --json " +
      folder.path("rows");
  const ProgramResult result = run_program(words + " --ranks 2", mpirun(3));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(count(result.out, "| strategy |"), 1) << result.out;
  EXPECT_EQ(read_rows(folder.path("rows")).size(), 2U);
}

}  // namespace
}  // namespace odyssey
