// SPDX-License-Identifier: Apache-2.0
#include "apps/check_cases.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "odyssey/base/bf16.h"
#include "odyssey/base/random.h"
#include "odyssey/comm/broadcast.h"
#include "odyssey/kernels/dense_attention.h"
#include "odyssey/schedule/checker.h"
#include "odyssey/sequence/balance.h"

namespace odyssey {
namespace {

int slices_of(const RunConfig& config) {
  return config.parallel.data * config.parallel.fsdp;
}
int context_ranks(const RunConfig& config) {
  return config.parallel.ring_size * config.parallel.ulysses_size;
}

// About a second of dense fp64 a case, but enough tokens for every rank.
int64_t check_length(const RunConfig& config) {
  constexpr double kOperations = 6e8, kOperationsPerPair = 6;  // times D, causal
  constexpr int64_t kLongest = 512;
  const auto width = static_cast<double>(config.model.query_heads * config.model.head_size);
  const auto affordable = static_cast<int64_t>(
      std::sqrt(kOperations / (kOperationsPerPair * width * slices_of(config))));
  const int64_t enough = 16 + int64_t{2} * context_ranks(config);
  return std::min(
      {std::max(affordable, enough), std::max(kLongest, enough), config.data.sequence_length});
}

bool is_prime(int64_t number) {
  for (int64_t divisor = 2; divisor * divisor <= number; ++divisor) {
    if (number % divisor == 0) return false;
  }
  return number >= 2;
}

// A prime below `length` that is no rank count; 1 where there is none.
int64_t uneven_length(int64_t length, int ranks) {
  for (int64_t number = length - 1; number >= 2; --number) {
    if (is_prime(number) && number != ranks) return number;
  }
  return 1;
}

// Normal numbers that any rank can make any part of; rounded first where the run rounds.
ReadPart random_tensor(uint64_t stream, DataType type) {
  return [random = Random(1, stream), type](int64_t first, std::span<float> out) {
    for (float& x : out) {
      x = static_cast<float>(random.normal(static_cast<uint64_t>(first++)));
      if (type == DataType::kBfloat16) x = to_float(bf16(x));
    }
  };
}

// A document of one token between two others, padding at the end; other lengths in each row.
std::vector<int32_t> packed_segments(int64_t batch, int64_t length) {
  std::vector<int32_t> segments;
  for (int64_t b = 0; b < batch; ++b) {
    int64_t row = 0;
    int32_t id = 0;
    for (int64_t document : {length / 3 + b % 3, int64_t{1}, length / 2 - 2 - b % 5}) {
      ++id;
      for (int64_t i = 0; i < document && row < length; ++i, ++row) segments.push_back(id);
    }
    for (; row < length; ++row) segments.push_back(0);
  }
  return segments;
}

CheckCase make_case(std::string name, const RunConfig& config, int64_t length) {
  CheckCase made{std::move(name), config, {}};
  AttentionProblem& problem = made.problem;
  problem.batch = slices_of(config);
  problem.length = length;
  problem.query_heads = config.model.query_heads;
  problem.kv_heads = config.model.kv_heads;
  problem.head_size = config.model.head_size;
  problem.query = random_tensor(1, config.model.data_type);
  problem.key = random_tensor(2, config.model.data_type);
  problem.value = random_tensor(3, config.model.data_type);
  problem.dout = random_tensor(4, config.model.data_type);
  if (config.model.attention_sink) {
    problem.sinks.resize(problem.query_heads);
    random_tensor(5, config.model.data_type)(0, problem.sinks);
  }
  return made;
}

std::vector<float> whole(const ReadPart& read, int64_t size) {
  std::vector<float> values(size);
  read(0, values);
  return values;
}

void append(const std::vector<double>& row, std::vector<double>& all) {
  all.insert(all.end(), row.begin(), row.end());
}

// Row after row.
DenseAttentionOutput dense(const CheckCase& check_case) {
  const AttentionProblem& problem = check_case.problem;
  const ModelConfig& model = check_case.config.model;
  const int64_t query_row = problem.length * problem.query_heads * problem.head_size;
  const int64_t key_row = problem.length * problem.kv_heads * problem.head_size;
  const std::vector<float> q = whole(problem.query, problem.batch * query_row);
  const std::vector<float> k = whole(problem.key, problem.batch * key_row);
  const std::vector<float> v = whole(problem.value, problem.batch * key_row);
  const std::vector<float> dout = whole(problem.dout, problem.batch * query_row);
  DenseAttentionOutput all;
  for (int64_t b = 0; b < problem.batch; ++b) {
    DenseAttentionInput row;
    row.sequence_length = problem.length;
    row.query_heads = problem.query_heads;
    row.kv_heads = problem.kv_heads;
    row.head_size = problem.head_size;
    row.q = std::span(q).subspan(b * query_row, query_row);
    row.k = std::span(k).subspan(b * key_row, key_row);
    row.v = std::span(v).subspan(b * key_row, key_row);
    row.dout = std::span(dout).subspan(b * query_row, query_row);
    if (!problem.segments.empty()) {
      row.segments = std::span(problem.segments).subspan(b * problem.length, problem.length);
    }
    row.sinks = problem.sinks;
    row.kind = model.masks.front().kind;
    row.window = model.masks.front().window;
    row.scale = double{attention_scale(check_case.config, problem.head_size)};
    row.soft_cap = double{model.attention_soft_cap};
    const DenseAttentionOutput got = dense_attention(row);
    append(got.out, all.out);
    append(got.lse, all.lse);
    append(got.dq, all.dq);
    append(got.dk, all.dk);
    append(got.dv, all.dv);
    all.dsinks.resize(problem.sinks.size());
    for (size_t h = 0; h < all.dsinks.size(); ++h) all.dsinks[h] += got.dsinks[h];
  }
  return all;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// In units of a tolerance that is absolute and relative.
double worst_error(const std::vector<float>& got, const std::vector<double>& expected,
                   double tolerance) {
  double worst = got.size() == expected.size() ? 0 : kInfinity;
  for (size_t i = 0; i < expected.size() && worst < kInfinity; ++i) {
    if (double{got[i]} == expected[i]) continue;  // also both -inf
    const double error =
        std::abs(double{got[i]} - expected[i]) / (tolerance * (1 + std::abs(expected[i])));
    worst = std::isnan(error) ? kInfinity : std::max(worst, error);
  }
  return worst;
}

double root_mean_square(const std::vector<float>& got, const std::vector<double>& expected) {
  if (got.size() != expected.size()) return kInfinity;
  double sum = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = double{got[i]} - expected[i];
    sum += error * error;
  }
  const double mean = std::sqrt(sum / static_cast<double>(std::max<size_t>(got.size(), 1)));
  return std::isnan(mean) ? kInfinity : mean;
}

double largest_error(const std::vector<float>& got, const std::vector<double>& expected) {
  double most = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    most = std::max(most, std::abs(double{got[i]} - expected[i]));
  }
  return most;
}

// In units of what bfloat16 may err: that of one rank, or one rounding of the result where one
// rank, by chance, errs less. Two measures: the mean says that nothing was lost in precision, the
// largest that no single row is wrong.
double bfloat16_error(const std::vector<float>& got, const std::vector<float>& one_rank,
                      const std::vector<double>& expected, size_t rows) {
  const double mean = root_mean_square(got, expected);
  if (!(mean < kInfinity)) return kInfinity;
  const double few = rows < kManyRows ? kBfloat16FewFactor : 1;
  const std::vector<float> nothing(expected.size());
  const double size = root_mean_square(nothing, expected);
  const double largest = largest_error(nothing, expected);
  const double allowed_mean = std::max({kBfloat16Factor * root_mean_square(one_rank, expected),
                                        kBfloat16Rounding * size, kFloat32Tolerance});
  const double allowed_largest =
      std::max({kBfloat16LargestFactor * largest_error(one_rank, expected),
                2 * kBfloat16Rounding * largest, kFloat32Tolerance});
  return std::max(mean / allowed_mean, largest_error(got, expected) / allowed_largest) / few;
}

RunConfig on_one_rank(RunConfig config) {
  config.parallel.data = config.parallel.fsdp = 1;
  config.parallel.ring_size = config.parallel.ulysses_size = 1;
  config.parallel.ring_nodes = config.parallel.ulysses_nodes = 1;
  config.parallel.placement = PlacementKind::kContiguous;
  return config;
}

// On rank 0.
void compare(const CheckCase& check_case, const AttentionResult& got, Group& alone,
             CheckResult& result) {
  const DenseAttentionOutput expected = dense(check_case);
  if (check_case.config.model.data_type == DataType::kFloat32) {
    result.out = worst_error(got.out, expected.out, kFloat32Tolerance);
    result.lse = worst_error(got.lse, expected.lse, kFloat32Tolerance);
    result.dquery = worst_error(got.dquery, expected.dq, kFloat32Tolerance);
    result.dkey = worst_error(got.dkey, expected.dk, kFloat32Tolerance);
    result.dvalue = worst_error(got.dvalue, expected.dv, kFloat32Tolerance);
    result.dsinks = worst_error(got.dsinks, expected.dsinks, kFloat32Tolerance);
    return;
  }
  result.lse = worst_error(got.lse, expected.lse, kBfloat16LseTolerance);
  const AttentionResult one =
      run_attention(on_one_rank(check_case.config), check_case.problem, alone);
  const size_t rows = expected.lse.size();
  result.out = bfloat16_error(got.out, one.out, expected.out, rows);
  result.dquery = bfloat16_error(got.dquery, one.dquery, expected.dq, rows);
  result.dkey = bfloat16_error(got.dkey, one.dkey, expected.dk, rows);
  result.dvalue = bfloat16_error(got.dvalue, one.dvalue, expected.dv, rows);
  if (!expected.dsinks.empty()) {
    result.dsinks = bfloat16_error(got.dsinks, one.dsinks, expected.dsinks, expected.dsinks.size());
  }
}

}  // namespace

std::vector<CheckCase> make_check_cases(const RunConfig& config) {
  const int64_t length = check_length(config);
  std::vector<CheckCase> cases;
  const auto add = [&](const char* name, int64_t length_of_case) -> CheckCase& {
    return cases.emplace_back(make_case(name, config, length_of_case));
  };
  const auto add_mask = [&](const char* name, MaskKind kind, int64_t window) -> CheckCase& {
    CheckCase& made = add(name, length);
    made.config.model.masks = {{kind, window}};
    return made;
  };
  const std::vector<MaskShare> masks = mask_shares(config.model);
  for (const MaskShare& share : masks) {
    add_mask("as configured", share.mask.kind, share.mask.window);
    CheckCase& packed = add_mask("packed documents", share.mask.kind, share.mask.window);
    packed.problem.segments = packed_segments(packed.problem.batch, length);
  }
  add_mask("causal", MaskKind::kCausal, 0);
  add_mask("full", MaskKind::kFull, 0);
  add_mask("sliding window", MaskKind::kLocalSliding, length / 5 + 1);
  add_mask("chunks", MaskKind::kChunk, length / 3 + 1);
  add("soft cap", length).config.model.attention_soft_cap = 2;
  add("uneven length", uneven_length(length, context_ranks(config)));
  add("few tokens", std::max(1, context_ranks(config) - 1));
  // The first cases said it already.
  std::erase_if(cases, [&](const CheckCase& made) {
    return (made.name == "causal" || made.name == "full") &&
           std::ranges::any_of(masks, [&](const MaskShare& share) {
             return share.mask == made.config.model.masks.front();
           });
  });
  return cases;
}

bool CheckResult::ok() const {
  // Each on its own: a comparison with NaN is false, a maximum may lose it.
  return fault.empty() && out <= 1 && lse <= 1 && dquery <= 1 && dkey <= 1 && dvalue <= 1 &&
         dsinks <= 1;
}

CheckResult run_check_case(const CheckCase& check_case, Group& world, Group& alone) {
  CheckResult result;
  // A wrong schedule may wait for ever, so it is not run.
  if (world.rank() == 0) {
    result.fault = find_fault(attention_layout(check_case.config, check_case.problem));
  }
  std::byte is_faulty{result.fault.empty() ? uint8_t{0} : uint8_t{1}};
  broadcast(world, std::span(&is_faulty, 1), 0);
  if (is_faulty != std::byte{0}) return result;
  const AttentionResult got = run_attention(check_case.config, check_case.problem, world);
  if (world.rank() == 0) compare(check_case, got, alone, result);
  return result;
}

WorkBalance work_balance(const AttentionLayout& layout, std::span<const int32_t> segments,
                         std::span<const MaskShare> masks) {
  const LayeredWork work =
      count_layered_work(row_placements(layout.placement, layout.batch, segments), segments, masks);
  const double heads = layout.heads.query_imbalance();
  return {work.imbalance() * heads, work.step_imbalance() * heads};
}

std::vector<int32_t> mixed_documents(int64_t batch, int64_t length) {
  constexpr int kDocuments = 20;
  const Random random(1, 5);
  std::vector<int32_t> segments;
  for (int64_t b = 0; b < batch; ++b) {
    std::vector<double> ends(1, 0);
    for (int d = 0; d < kDocuments; ++d) {
      const auto draw = static_cast<uint64_t>(b * kDocuments + d);
      ends.push_back(ends.back() + std::exp(random.normal(draw)));
    }
    int32_t document = 1;
    for (int64_t i = 0; i < length; ++i) {
      const double place = static_cast<double>(i) / static_cast<double>(length) * ends.back();
      while (document < kDocuments && place >= ends[document]) ++document;
      segments.push_back(document);
    }
  }
  return segments;
}

}  // namespace odyssey
