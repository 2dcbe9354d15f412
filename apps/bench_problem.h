// SPDX-License-Identifier: Apache-2.0
// What `odyssey bench kernel` measures: problems, read from set files. A set is a text with one
// problem a line; "#" starts a comment.
//   attention     forward|backward  bf16|fp32  causal|full  B S H K D
//   matmul        forward|backward_input|backward_weight  bf16|fp32  T N K      y [T, N] = x [T, K]
//   w^T rms_norm      forward|backward  bf16|fp32  TxE rope          forward|backward  bf16|fp32
//   TxHD      heads of 128 swiglu        forward|backward  bf16|fp32  TxF cross_entropy
//   forward|backward  bf16|fp32  CxV       backward gives loss and gradient adamw         step fp32
//   RxC       R times C parameters
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace odyssey {

enum class BenchKernel { kAttention, kMatmul, kRmsNorm, kRope, kSwiglu, kCrossEntropy, kAdamw };
std::string_view name_of(BenchKernel kernel);

struct BenchProblem {
  BenchKernel kernel = BenchKernel::kAttention;
  std::string direction, dtype;
  std::string mask = "none";  // of attention
  // Of attention; S, H, K and D as everywhere.
  int64_t batch = 0, sequence = 0, heads = 0, kv_heads = 0, head_size = 0;
  int64_t t = 0, n = 0, k = 0;  // of matmul
  int64_t rows = 0, width = 0;  // of the rest
  bool is_bf16() const { return dtype == "bf16"; }
  bool is_elementwise() const {
    return kernel != BenchKernel::kAttention && kernel != BenchKernel::kMatmul;
  }
};

// Head size of rope problems.
inline constexpr int64_t kRopeHeadSize = 128;

// Throws UserError that names `path`, the line and what is wrong there.
std::vector<BenchProblem> parse_bench_set(std::string_view path, std::string_view text);

// `name` is a file, or attention for bench/sets/attention.txt and so on. Throws UserError.
std::vector<BenchProblem> read_bench_set(const std::string& name);

// Operations of one call by the usual count, a multiply-add being 2: attention forward 4 S^2 D H,
// backward 10 S^2 D H, half of both under a causal mask; matmul 2 T N K. 0 for elementwise kernels.
double flops_of(const BenchProblem& problem);
// Bytes that an elementwise kernel must move at least: each input read once, each output written
// once. 0 for the others.
double bytes_of(const BenchProblem& problem);

}  // namespace odyssey
