// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/embedding.h"

#include <algorithm>
#include <string>

#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/row_kernels.h"

namespace odyssey {
namespace {

void check_tokens(std::span<const int32_t> tokens, int64_t vocabulary) {
  for (size_t t = 0; t < tokens.size(); ++t) {
    if (tokens[t] >= 0 && tokens[t] < vocabulary) continue;
    throw user_error(fmt::format("token at index {}", t),
                     fmt::format("0 to {} (vocabulary {})", vocabulary - 1, vocabulary),
                     std::to_string(tokens[t]), "Use the tokenizer that belongs to the model.");
  }
}

}  // namespace

template <Storage T>
void embedding(Input<T, 2> table, std::span<const int32_t> tokens, float scale, View<T, 2> out) {
  const int64_t width = table.extent(1), rows = out.extent(0);
  ODYSSEY_CHECK(out.extent(1) == width && static_cast<int64_t>(tokens.size()) == rows,
                "{} tokens of width {} into [{}, {}]", tokens.size(), width, rows, out.extent(1));
  check_rows_contiguous(table, "table");
  check_rows_contiguous(out, "out");
  check_tokens(tokens, table.extent(0));
  const auto kernel = stored_rows<T>(row_kernels()).scale;
  parallel_ranges(rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const T* from = table.data() + tokens[static_cast<size_t>(t)] * table.stride(0);
      // A scale of 1 changes no bit: x * 1 rounds back to x.
      kernel(scale, from, width, out.data() + t * out.stride(0));
    }
  });
}

template <Storage T>
void embedding_backward(Input<T, 2> dout, std::span<const int32_t> tokens, float scale,
                        View<float, 2> d_table) {
  const int64_t width = d_table.extent(1), rows = dout.extent(0);
  ODYSSEY_CHECK(dout.extent(1) == width && static_cast<int64_t>(tokens.size()) == rows,
                "{} tokens for gradients [{}, {}] of width {}", tokens.size(), rows, dout.extent(1),
                width);
  check_rows_contiguous(dout, "dout");
  check_rows_contiguous(d_table, "d_table");
  check_tokens(tokens, d_table.extent(0));
  const auto kernel = stored_rows<T>(row_kernels()).add_scaled;
  // Threads split the columns, not the tokens: a token may come twice.
  parallel_ranges(width, 64, [&](int64_t begin, int64_t end) {
    for (int64_t t = 0; t < rows; ++t) {
      const T* from = dout.data() + t * dout.stride(0);
      float* to = d_table.data() + tokens[static_cast<size_t>(t)] * d_table.stride(0);
      kernel(scale, from + begin, end - begin, to + begin);
    }
  });
}

template void embedding<float>(Input<float, 2>, std::span<const int32_t>, float, View<float, 2>);
template void embedding<bf16>(Input<bf16, 2>, std::span<const int32_t>, float, View<bf16, 2>);
template void embedding_backward<float>(Input<float, 2>, std::span<const int32_t>, float,
                                        View<float, 2>);
template void embedding_backward<bf16>(Input<bf16, 2>, std::span<const int32_t>, float,
                                       View<float, 2>);

}  // namespace odyssey
