// SPDX-License-Identifier: Apache-2.0
// `odyssey attention` from file to file: right on thread ranks, and every bad file refused.
#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "apps/run_program.h"
#include "odyssey/base/random.h"
#include "odyssey/io/safetensors.h"
#include "odyssey/io/test_folder.h"
#include "odyssey/kernels/dense_attention.h"

namespace odyssey {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Tensor>;

Tensor normal(const std::vector<int64_t>& shape, uint64_t stream) {
  Tensor tensor{shape, {}};
  int64_t size = 1;
  for (int64_t extent : shape) size *= extent;
  const Random random(1, stream);
  for (int64_t i = 0; i < size; ++i) {
    tensor.values.push_back(static_cast<float>(random.normal(static_cast<uint64_t>(i))));
  }
  return tensor;
}

// B 1, S 21, H 4, K 2, D 8, with dout.
Tensors usual() {
  return {{"query", normal({1, 21, 4, 8}, 1)},
          {"key", normal({1, 21, 2, 8}, 2)},
          {"value", normal({1, 21, 2, 8}, 3)},
          {"dout", normal({1, 21, 4, 8}, 4)}};
}

class AttentionCommand : public testing::Test {
 protected:
  void save(const Tensors& tensors) {
    std::vector<TensorToWrite> list;
    for (const auto& [name, tensor] : tensors) {
      list.push_back({name, StoredType::kF32, tensor.shape, tensor.values.data()});
    }
    write_safetensors(input_, list);
  }
  ProgramResult run(const std::string& words = "") {
    return run_program("attention --input " + input_ + " --output " + output_ + " " + words);
  }
  void expect_refused(const std::string& message, const std::string& words = "") {
    const ProgramResult result = run(words);
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.err, "odyssey: error: " + message + "\n");
    EXPECT_THAT(folder_.names(), testing::ElementsAre("in.safetensors"));
  }
  std::string tensor(const std::string& name) const { return "tensor '" + name + "' of " + input_; }

  TestFolder folder_;
  std::string input_ = folder_.path("in.safetensors"), output_ = folder_.path("out.safetensors");
};

void expect_near(const SafetensorsFile& file, const std::string& name,
                 const std::vector<double>& expected) {
  SCOPED_TRACE(name);
  const std::vector<float> got = file.read_floats(name);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(double{got[i]}, expected[i], 1e-5 * (1 + std::abs(expected[i]))) << i;
  }
}

TEST_F(AttentionCommand, EqualsDenseOnThreads) {
  const Tensors tensors = usual();
  save(tensors);
  DenseAttentionInput input;
  input.sequence_length = 21;
  input.query_heads = 4;
  input.kv_heads = 2;
  input.head_size = 8;
  input.q = tensors.at("query").values;
  input.k = tensors.at("key").values;
  input.v = tensors.at("value").values;
  input.dout = tensors.at("dout").values;
  input.scale = 1 / std::sqrt(8.0);
  const DenseAttentionOutput expected = dense_attention(input);
  const std::string usp =
      "context_parallel_strategy=usp ici_context_parallelism=3 "
      "ici_context_usp_ulysses_parallelism=2 ";
  for (const std::string& words :
       {std::string(), usp, usp + "context_parallel_reorder_strategy=striped",
        std::string("context_parallel_strategy=ulysses ici_context_parallelism=-1 "
                    "ici_fsdp_parallelism=1 --ranks 3")}) {
    const ProgramResult result = run(words + " dtype=float32");
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, IsEmpty());
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1) << result.out;
    const SafetensorsFile file(output_);
    EXPECT_EQ(file.tensors().size(), 6U);
    EXPECT_THAT(file.tensor("lse").shape, testing::ElementsAre(1, 4, 21));
    EXPECT_THAT(file.tensor("dkey").shape, testing::ElementsAre(1, 21, 2, 8));
    expect_near(file, "out", expected.out);
    expect_near(file, "lse", expected.lse);
    expect_near(file, "dquery", expected.dq);
    expect_near(file, "dkey", expected.dk);
    expect_near(file, "dvalue", expected.dv);
    expect_near(file, "max_logits", expected.max_logits);
  }
}

TEST_F(AttentionCommand, WithoutDoutThereIsNoBackward) {
  Tensors tensors = usual();
  tensors.erase("dout");
  tensors["sinks"] = {{4}, {0, 1, 2, 3}};
  save(tensors);
  ASSERT_EQ(run().code, 0);
  const SafetensorsFile file(output_);
  EXPECT_TRUE(file.contains("out") && file.contains("lse") && file.contains("max_logits"));
  EXPECT_EQ(file.tensors().size(), 3U);
}

TEST_F(AttentionCommand, NotesAndKeysWithoutEffectArePrinted) {
  save(usual());
  const ProgramResult result = run("attention_type=full sliding_window_size=3 sa_block_q=512");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("note: sliding_window_size=3 changes nothing"));
  EXPECT_THAT(result.out, HasSubstr("note: no effect here: sa_block_q\n"));
}

TEST_F(AttentionCommand, MissingAndUnknownTensors) {
  Tensors tensors = usual();
  tensors.erase("key");
  save(tensors);
  expect_refused(input_ +
                 ": expected tensors query, key and value, got no 'key'. See odyssey "
                 "attention --help.");
  tensors = usual();
  tensors["segments"] = normal({1, 21}, 5);
  save(tensors);
  expect_refused(tensor("segments") +
                 ": expected query, key, value, dout, segment_ids or sinks, got a tensor of no "
                 "meaning here. Take it out of the file.");
  tensors = usual();
  tensors["sink"] = normal({4}, 5);
  save(tensors);
  const ProgramResult result = run();
  EXPECT_THAT(result.err, HasSubstr("Did you mean sinks?"));
}

TEST_F(AttentionCommand, WrongShapes) {
  const std::string fit = ". It must fit the shapes of query and key.";
  const auto with = [](const std::string& name, const std::vector<int64_t>& shape) {
    Tensors tensors = usual();
    tensors[name] = normal(shape, 5);
    return tensors;
  };
  save(with("query", {21, 4, 8}));
  expect_refused(tensor("query") +
                 ": expected shape [B, S, H, D] with every axis at least 1, got "
                 "[21, 4, 8]. B rows, S tokens, H or K heads, D numbers a head.");
  save(with("query", {1, 0, 4, 8}));
  EXPECT_THAT(run().err, HasSubstr("with every axis at least 1, got [1, 0, 4, 8]"));
  save(with("key", {1, 20, 2, 8}));
  expect_refused(tensor("key") +
                 ": expected shape [B, S, K, D] = [1, 21, 2, 8], got [1, 20, 2, 8]" + fit);
  save(with("key", {2, 21, 2, 8}));
  expect_refused(tensor("key") +
                 ": expected shape [B, S, K, D] = [1, 21, 2, 8], got [2, 21, 2, 8]" + fit);
  save(with("value", {1, 21, 1, 8}));
  expect_refused(tensor("value") +
                 ": expected shape [B, S, K, D] = [1, 21, 2, 8], got [1, 21, 1, 8]" + fit);
  save(with("dout", {1, 21, 4, 4}));
  expect_refused(tensor("dout") +
                 ": expected shape [B, S, H, D] = [1, 21, 4, 8], got [1, 21, 4, 4]" + fit);
  save(with("segment_ids", {21}));
  expect_refused(tensor("segment_ids") + ": expected shape [B, S] = [1, 21], got [21]" + fit);
  save(with("sinks", {2}));
  expect_refused(tensor("sinks") + ": expected shape [H] = [4], got [2]" + fit);
}

TEST_F(AttentionCommand, HeadsThatDoNotFit) {
  Tensors tensors = usual();
  tensors["key"] = tensors["value"] = normal({1, 21, 3, 8}, 5);
  save(tensors);
  expect_refused(tensor("query") +
                 ": expected H a multiple of the K=3 heads of key, got H=4. Every "
                 "key/value head serves the same number of query heads.");
}

TEST_F(AttentionCommand, SegmentIds) {
  Tensors tensors = usual();
  tensors["segment_ids"] = normal({1, 21}, 5);  // F32
  save(tensors);
  EXPECT_THAT(run().err, HasSubstr("segment_ids"));
  std::vector<TensorToWrite> list;
  tensors = usual();
  for (const auto& [name, tensor] : tensors) {
    list.push_back({name, StoredType::kF32, tensor.shape, tensor.values.data()});
  }
  std::vector<int32_t> ids(21, 1);
  ids[7] = -1;
  list.push_back({"segment_ids", StoredType::kI32, {1, 21}, ids.data()});
  write_safetensors(input_, list);
  expect_refused(tensor("segment_ids") +
                 ": expected ids of at least 0 (0 is padding), got -1 at "
                 "index 7. Number the documents of a row 1, 2, ...");
}

TEST_F(AttentionCommand, FilesThatCannotBeRead) {
  EXPECT_EQ(run().err, "odyssey: error: " + input_ +
                           ": expected a readable file, got No such file or directory. Check the "
                           "path and its permissions.\n");
  const std::string folder = folder_.path();
  EXPECT_EQ(run_program("attention --input " + folder + " --output " + output_).err,
            "odyssey: error: " + folder +
                ": expected a readable file, got a folder. Check the path and its permissions.\n");
  const std::string header =
      R"({"query":{"dtype":"F32","shape":[9007199254740993,4],"data_offsets":[0,4]}})";
  std::string length(8, '\0');
  length[0] = static_cast<char>(header.size());
  for (const std::string& hostile :
       {std::string(), std::string("x"), std::string(8, '\xff'), std::string(100, '{'),
        length + header, length + header + "1234"}) {
    folder_.write("in.safetensors", hostile);
    const ProgramResult result = run();
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err, testing::StartsWith("odyssey: error: "));
    EXPECT_THAT(result.err, HasSubstr(input_));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST_F(AttentionCommand, OutputsThatCannotBeWritten) {
  save(usual());
  output_ = folder_.path("nowhere/out.safetensors");
  expect_refused(
      "cannot write " + output_ +
      ": expected a folder that exists and may be written, got No such file or directory. "
      "Make the folder " +
      folder_.path("nowhere") + " or choose another.");
  output_ = folder_.path();
  EXPECT_EQ(run().code, 2);
}

TEST_F(AttentionCommand, RanksOfOtherAxesAreRefused) {
  save(usual());
  expect_refused(
      "ici_data_parallelism x ici_fsdp_parallelism: expected 1 for odyssey attention, got "
      "1 x 4. Start 1 rank, or give the ranks to ici_context_parallelism.",
      "--ranks 4");
}

TEST_F(AttentionCommand, MissingOptions) {
  EXPECT_EQ(run_program("attention").err,
            "odyssey: error: odyssey attention: expected --input FILE, got none. See odyssey "
            "attention --help.\n");
  EXPECT_EQ(run_program("attention --input x").err,
            "odyssey: error: odyssey attention: expected --output FILE, got none. See odyssey "
            "attention --help.\n");
}

}  // namespace
}  // namespace odyssey
