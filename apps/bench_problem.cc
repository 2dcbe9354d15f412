// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_problem.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <optional>

#include <fmt/core.h>

#include "odyssey/base/error.h"
#include "odyssey/config/spelling.h"

namespace odyssey {
namespace {

using Words = std::vector<std::string>;

const std::string kSetsFolder = "bench/sets";
constexpr int64_t kLargestNumber = int64_t{1} << 31;
// Elements of one tensor: more is a slip of the pen, and would not fit in 64 bits for long.
constexpr double kLargestTensor = 1e12;

struct KernelSyntax {
  BenchKernel kernel;
  Words directions, dtypes;
};

const std::vector<KernelSyntax>& syntax() {
  static const Words both = {"forward", "backward"}, types = {"bf16", "fp32"};
  static const std::vector<KernelSyntax> all = {
      {BenchKernel::kAttention, both, types},
      {BenchKernel::kMatmul, {"forward", "backward_input", "backward_weight"}, types},
      {BenchKernel::kRmsNorm, both, types},
      {BenchKernel::kRope, both, types},
      {BenchKernel::kSwiglu, both, types},
      {BenchKernel::kCrossEntropy, both, types},
      {BenchKernel::kAdamw, {"step"}, {"fp32"}}};
  return all;
}

Words split(std::string_view line) {
  line = line.substr(0, line.find('#'));
  constexpr std::string_view kBlank = " \t\r";
  Words words;
  for (size_t at; (at = line.find_first_not_of(kBlank)) != std::string_view::npos;) {
    line.remove_prefix(at);
    const size_t end = std::min(line.find_first_of(kBlank), line.size());
    words.emplace_back(line.substr(0, end));
    line.remove_prefix(end);
  }
  return words;
}

// The words of one line, taken one after the other.
class LineReader {
 public:
  LineReader(std::string_view path, int64_t line, Words words)
      : place_(fmt::format("{}:{}", path, line)), words_(std::move(words)) {}

  const std::string& word(const std::string& what, const Words& allowed) {
    const std::string& got = next(what, join_with_or(allowed));
    if (std::find(allowed.begin(), allowed.end(), got) != allowed.end()) return got;
    const std::string nearest = nearest_name(got, allowed);
    throw wrong(what, join_with_or(allowed), got,
                nearest.empty() ? "" : fmt::format("Did you mean {}?", nearest));
  }
  int64_t number(const std::string& what) {
    const std::string& got = next(what, kNumber);
    const std::optional<int64_t> value = as_number(got);
    if (!value) throw wrong(what, kNumber, got);
    return *value;
  }
  // "2048x4096"
  std::array<int64_t, 2> rows_and_width() {
    const std::string expected = "ROWSxWIDTH, such as 2048x4096";
    const std::string& got = next("size", expected);
    const size_t cross = got.find('x');
    if (cross == std::string::npos) throw wrong("size", expected, got);
    const auto rows = as_number(got.substr(0, cross)), width = as_number(got.substr(cross + 1));
    if (!rows || !width) throw wrong("size", expected, got);
    return {*rows, *width};
  }
  void end() const {
    if (at_ < words_.size()) throw wrong("end of the line", "no more words", words_[at_]);
  }
  UserError wrong(const std::string& what, const std::string& expected, const std::string& got,
                  const std::string& remedy = "") const {
    return user_error(fmt::format("{}: {}", place_, what), expected, got,
                      remedy.empty() ? "See odyssey bench kernel --help." : remedy);
  }

 private:
  static constexpr const char* kNumber = "a whole number from 1 to 2147483648";

  static std::optional<int64_t> as_number(const std::string& text) {
    int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || stop != end || value < 1 || value > kLargestNumber) return {};
    return value;
  }
  const std::string& next(const std::string& what, const std::string& expected) {
    if (at_ == words_.size()) throw wrong(what, expected, "the end of the line");
    return words_[at_++];
  }

  std::string place_;
  Words words_;
  size_t at_ = 0;
};

void read_attention(LineReader& line, BenchProblem& problem) {
  problem.mask = line.word("mask", {"causal", "full"});
  problem.batch = line.number("batch");
  problem.sequence = line.number("sequence");
  problem.heads = line.number("heads");
  problem.kv_heads = line.number("kv_heads");
  problem.head_size = line.number("head_dim");
  if (problem.heads % problem.kv_heads != 0) {
    throw line.wrong("kv_heads", fmt::format("a divisor of the {} heads", problem.heads),
                     fmt::format("{}", problem.kv_heads));
  }
}

double largest_tensor(const BenchProblem& p) {
  const auto product = [](std::initializer_list<int64_t> extents) {
    double size = 1;
    for (int64_t extent : extents) size *= static_cast<double>(extent);
    return size;
  };
  return std::max({product({p.batch, p.sequence, p.heads, p.head_size}), product({p.t, p.n}),
                   product({p.t, p.k}), product({p.n, p.k}), 2 * product({p.rows, p.width})});
}

BenchProblem parse_line(LineReader& line) {
  Words kernels;
  for (const KernelSyntax& one : syntax()) kernels.emplace_back(name_of(one.kernel));
  const std::string name = line.word("kernel", kernels);
  const KernelSyntax& found = *std::find_if(syntax().begin(), syntax().end(), [&](const auto& one) {
    return name_of(one.kernel) == name;
  });
  BenchProblem problem;
  problem.kernel = found.kernel;
  problem.direction = line.word("direction", found.directions);
  problem.dtype = line.word("dtype", found.dtypes);
  if (problem.kernel == BenchKernel::kAttention) {
    read_attention(line, problem);
  } else if (problem.kernel == BenchKernel::kMatmul) {
    problem.t = line.number("T");
    problem.n = line.number("N");
    problem.k = line.number("K");
  } else {
    const auto [rows, width] = line.rows_and_width();
    problem.rows = rows;
    problem.width = width;
  }
  if (problem.kernel == BenchKernel::kRope && problem.width % kRopeHeadSize != 0) {
    throw line.wrong("size", fmt::format("a width of whole heads of {}", kRopeHeadSize),
                     fmt::format("{}", problem.width));
  }
  line.end();
  if (const double size = largest_tensor(problem); size > kLargestTensor) {
    throw line.wrong("sizes", "tensors of at most 1e12 elements", fmt::format("{:.3g}", size));
  }
  return problem;
}

// The sets that a user may name without their path.
Words known_sets() {
  Words names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(kSetsFolder, ignored)) {
    if (entry.path().extension() == ".txt") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

UserError unknown_set(const std::string& name) {
  Words sets = known_sets();
  const std::string nearest = nearest_name(name, sets);
  sets.emplace_back("a file");
  const std::string remedy = nearest.empty()
                                 ? fmt::format("Sets stand in {}.", kSetsFolder)
                                 : fmt::format("Did you mean odyssey bench kernel {}?", nearest);
  return user_error("set", join_with_or(sets), name.empty() ? "an empty word" : name, remedy);
}

}  // namespace

std::string_view name_of(BenchKernel kernel) {
  switch (kernel) {
    case BenchKernel::kAttention:
      return "attention";
    case BenchKernel::kMatmul:
      return "matmul";
    case BenchKernel::kRmsNorm:
      return "rms_norm";
    case BenchKernel::kRope:
      return "rope";
    case BenchKernel::kSwiglu:
      return "swiglu";
    case BenchKernel::kCrossEntropy:
      return "cross_entropy";
    case BenchKernel::kAdamw:
      return "adamw";
  }
  return "?";
}

std::vector<BenchProblem> parse_bench_set(std::string_view path, std::string_view text) {
  std::vector<BenchProblem> problems;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    Words words = split(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (words.empty()) continue;
    LineReader line(path, number, std::move(words));
    problems.push_back(parse_line(line));
  }
  if (problems.empty()) {
    throw user_error(path, "a problem on a line", "none", "See odyssey bench kernel --help.");
  }
  return problems;
}

std::vector<BenchProblem> read_bench_set(const std::string& name) {
  const bool is_path = name.find('/') != std::string::npos || name.ends_with(".txt");
  const std::string path = is_path ? name : fmt::format("{}/{}.txt", kSetsFolder, name);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) throw unknown_set(name);
  if (std::filesystem::is_directory(path, ignored)) {
    throw user_error(path, "a set file", "a folder", "Check the path.");
  }
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file) throw user_error(path, "a file that may be read", "none", "Check its permissions.");
  return parse_bench_set(path, text);
}

double flops_of(const BenchProblem& p) {
  if (p.is_elementwise()) return 0;
  if (p.kernel == BenchKernel::kMatmul) {
    return 2.0 * static_cast<double>(p.t) * static_cast<double>(p.n) * static_cast<double>(p.k);
  }
  const double pairs = static_cast<double>(p.sequence) * static_cast<double>(p.sequence);
  const double all = (p.direction == "forward" ? 4.0 : 10.0) * pairs *
                     static_cast<double>(p.batch * p.heads * p.head_size);
  return p.mask == "causal" ? all / 2 : all;
}

double bytes_of(const BenchProblem& p) {
  const double elements = static_cast<double>(p.rows) * static_cast<double>(p.width);
  const double storage = (p.is_bf16() ? 2 : 4) * elements;  // one tensor in its data type
  const bool forward = p.direction == "forward";
  switch (p.kernel) {
    case BenchKernel::kRmsNorm:  // x, y; backward x, dy, dx
      return (forward ? 2 : 3) * storage;
    case BenchKernel::kRope:  // in place
      return 2 * storage;
    case BenchKernel::kSwiglu:  // gate and up, out; backward gate, up, dout and two gradients
      return (forward ? 3 : 5) * storage;
    case BenchKernel::kCrossEntropy:  // fp32 logits; their gradient in the data type
      return 4 * elements + (forward ? 0 : storage);
    case BenchKernel::kAdamw:  // reads 4 tensors, writes 3
      return 7 * storage;
    case BenchKernel::kAttention:
    case BenchKernel::kMatmul:
      break;
  }
  return 0;
}

}  // namespace odyssey
