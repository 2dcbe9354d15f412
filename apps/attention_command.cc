// SPDX-License-Identifier: Apache-2.0
#include "apps/attention_command.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "apps/describe.h"
#include "odyssey/base/error.h"
#include "odyssey/config/spelling.h"
#include "odyssey/io/atomic_file.h"
#include "odyssey/kernels/isa.h"

namespace odyssey {
namespace {

constexpr const char* kLayoutHelp = "See odyssey attention --help.";
constexpr std::array<const char*, 6> kTensors = {"query", "key",         "value",
                                                 "dout",  "segment_ids", "sinks"};

UserError tensor_error(const SafetensorsFile& file, const std::string& name,
                       const std::string& expected, const std::string& actual,
                       const std::string& remedy) {
  return user_error(fmt::format("tensor '{}' of {}", name, file.path()), expected, actual, remedy);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

void refuse_unknown(const SafetensorsFile& file) {
  const std::vector<std::string> known(kTensors.begin(), kTensors.end());
  for (const StoredTensor& tensor : file.tensors()) {
    if (std::find(known.begin(), known.end(), tensor.name) != known.end()) continue;
    const std::string nearest = nearest_name(tensor.name, known);
    throw tensor_error(
        file, tensor.name, join_with_or(known), "a tensor of no meaning here",
        nearest.empty() ? "Take it out of the file." : fmt::format("Did you mean {}?", nearest));
  }
  for (const char* name : {"query", "key", "value"}) {
    if (!file.contains(name)) {
      throw user_error(file.path(), "tensors query, key and value", fmt::format("no '{}'", name),
                       kLayoutHelp);
    }
  }
}

void check_floating(const SafetensorsFile& file, const std::string& name) {
  const StoredType type = file.tensor(name).type;
  if (type == StoredType::kF64 || type == StoredType::kF32 || type == StoredType::kF16 ||
      type == StoredType::kBf16) {
    return;
  }
  throw tensor_error(file, name, "F32, F64, F16 or BF16", std::string(name_of(type)),
                     "Store it in one of these types.");
}

void check_shape(const SafetensorsFile& file, const std::string& name, const char* letters,
                 const std::vector<int64_t>& expected) {
  const std::vector<int64_t>& actual = file.tensor(name).shape;
  if (actual == expected) return;
  throw tensor_error(file, name, fmt::format("shape {} = {}", letters, shape_text(expected)),
                     shape_text(actual), "It must fit the shapes of query and key.");
}

// Four axes, none of them empty.
std::vector<int64_t> four_axes(const SafetensorsFile& file, const std::string& name,
                               const char* letters) {
  const std::vector<int64_t>& shape = file.tensor(name).shape;
  const bool is_right = shape.size() == 4 && *std::min_element(shape.begin(), shape.end()) >= 1;
  if (is_right) return shape;
  throw tensor_error(file, name, fmt::format("shape {} with every axis at least 1", letters),
                     shape_text(shape), "B rows, S tokens, H or K heads, D numbers a head.");
}

void read_shapes(const SafetensorsFile& file, AttentionProblem& problem) {
  const std::vector<int64_t> query = four_axes(file, "query", "[B, S, H, D]");
  const std::vector<int64_t> key = four_axes(file, "key", "[B, S, K, D]");
  problem.batch = query[0];
  problem.length = query[1];
  problem.query_heads = query[2];
  problem.head_size = query[3];
  problem.kv_heads = key[2];
  check_shape(file, "key", "[B, S, K, D]", {query[0], query[1], key[2], query[3]});
  check_shape(file, "value", "[B, S, K, D]", key);
  if (query[2] % key[2] != 0) {
    throw tensor_error(file, "query", fmt::format("H a multiple of the K={} heads of key", key[2]),
                       fmt::format("H={}", query[2]),
                       "Every key/value head serves the same number of query heads.");
  }
  if (file.contains("dout")) check_shape(file, "dout", "[B, S, H, D]", query);
  if (file.contains("segment_ids")) {
    check_shape(file, "segment_ids", "[B, S]", {query[0], query[1]});
  }
  if (file.contains("sinks")) check_shape(file, "sinks", "[H]", {query[2]});
}

std::vector<int32_t> read_segments(const SafetensorsFile& file) {
  const std::string name = "segment_ids";
  std::vector<int32_t> segments = file.read_int32(name);
  const auto negative =
      std::find_if(segments.begin(), segments.end(), [](int32_t id) { return id < 0; });
  if (negative == segments.end()) return segments;
  throw tensor_error(
      file, name, "ids of at least 0 (0 is padding)",
      fmt::format("{} at index {}", *negative, std::distance(segments.begin(), negative)),
      "Number the documents of a row 1, 2, ...");
}

// One call has no batch to share: every rank must be of the context axes.
void refuse_batch_axes(const RunConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  const int slices = parallel.data * parallel.fsdp;
  if (slices == 1) return;
  const int context = parallel.ring_size * parallel.ulysses_size;
  throw user_error("ici_data_parallelism x ici_fsdp_parallelism", "1 for odyssey attention",
                   fmt::format("{} x {}", parallel.data, parallel.fsdp),
                   fmt::format("Start {} {}, or give the ranks to ici_context_parallelism.",
                               context, context == 1 ? "rank" : "ranks"));
}

void write_result(const std::string& path, const AttentionProblem& problem,
                  const AttentionResult& result) {
  const std::vector<int64_t> query{problem.batch, problem.length, problem.query_heads,
                                   problem.head_size};
  const std::vector<int64_t> key{problem.batch, problem.length, problem.kv_heads,
                                 problem.head_size};
  std::vector<TensorToWrite> tensors;
  const auto add = [&](const char* name, const std::vector<int64_t>& shape,
                       const std::vector<float>& values) {
    if (!values.empty()) tensors.push_back({name, StoredType::kF32, shape, values.data()});
  };
  add("out", query, result.out);
  add("lse", {problem.batch, problem.query_heads, problem.length}, result.lse);
  add("dquery", query, result.dquery);
  add("dkey", key, result.dkey);
  add("dvalue", key, result.dvalue);
  add("dsinks", {problem.query_heads}, result.dsinks);
  add("max_logits", {problem.query_heads}, result.max_logits);
  write_safetensors(path, tensors);
}

void print_summary(const AttentionCommand& command, const RunConfig& config,
                   const AttentionProblem& problem, const AttentionResult& result) {
  fmt::print("{}attention: B {} S {} H {} K {} D {}, {}, {}, {}; {} in {:.3g} s -> {}\n",
             describe_notes(config), problem.batch, problem.length, problem.query_heads,
             problem.kv_heads, problem.head_size, describe(config.parallel),
             name_of(config.model.masks.front().kind), name_of(config.model.data_type),
             problem.dout ? "forward and backward" : "forward", result.seconds, command.output);
}

}  // namespace

AttentionProblem read_attention_problem(const SafetensorsFile& file) {
  refuse_unknown(file);
  AttentionProblem problem;
  read_shapes(file, problem);
  const auto part_of = [&](const std::string& name) -> ReadPart {
    check_floating(file, name);
    return
        [&file, name](int64_t first, std::span<float> out) { file.read_floats(name, first, out); };
  };
  problem.query = part_of("query");
  problem.key = part_of("key");
  problem.value = part_of("value");
  if (file.contains("dout")) problem.dout = part_of("dout");
  if (file.contains("segment_ids")) problem.segments = read_segments(file);
  if (file.contains("sinks")) {
    check_floating(file, "sinks");
    problem.sinks = file.read_floats("sinks");
  }
  return problem;
}

int run_attention_command(const AttentionCommand& command, const LaunchOptions& options) {
  std::unique_ptr<SafetensorsFile> file;
  AttentionProblem problem;
  const auto configure = [&](int64_t available_ranks) {
    isa_in_use();  // refuses a wrong ODYSSEY_MAX_ISA
    RunConfig config = make_attention_config(command.key_values, available_ranks);
    refuse_batch_axes(config);
    file = std::make_unique<SafetensorsFile>(command.input);
    problem = read_attention_problem(*file);
    return config;
  };
  const auto body = [&](const RunConfig& config, Group& world) {
    // Found before the work, not after it.
    on_rank_0(world, [&] { const AtomicFile probe(command.output); });
    const AttentionResult result = run_attention(config, problem, world);
    on_rank_0(world, [&] { write_result(command.output, problem, result); });
    if (world.rank() == 0) print_summary(command, config, problem, result);
    return kExitDone;
  };
  return launch(options, configure, body);
}

}  // namespace odyssey
