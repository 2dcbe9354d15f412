// SPDX-License-Identifier: Apache-2.0
#include "apps/attention_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "odyssey/base/error.h"
#include "odyssey/comm/agreement.h"
#include "odyssey/comm/all_reduce.h"
#include "odyssey/comm/mesh.h"
#include "odyssey/context/parallel_attention.h"

namespace odyssey {
namespace {

// Neighbouring positions that are stored one after the other.
struct Stretch {
  int64_t position, row, count;
};

std::vector<Stretch> stretches_of(const std::vector<Run>& runs) {
  std::vector<Stretch> stretches;
  int64_t row = 0;
  for (const Run& run : runs) {
    const int64_t step = run.stride == 1 ? run.count : 1;
    for (int64_t i = 0; i < run.count; i += step) {
      stretches.push_back({run.first + i * run.stride, row + i, step});
    }
    row += run.count;
  }
  return stretches;
}

RankPlace place_of(const ParallelConfig& parallel, int rank) {
  return odyssey::place_of(rank, parallel.data, parallel.fsdp, parallel.ring_size,
                           parallel.ulysses_size, {parallel.ring_nodes, parallel.ulysses_nodes});
}

// Which part of the batch a rank of the world works on.
int64_t slice_of(const RunConfig& config, int rank) {
  const RankPlace place = place_of(config.parallel, rank);
  return int64_t{place.data} * config.parallel.fsdp + place.fsdp;
}

// What one rank of the world has of the whole tensors.
struct RankPart {
  int64_t first_batch, batch;                     // batch rows
  std::vector<std::vector<Stretch>> rows, block;  // [B]: of this rank, and of its ring block
  int64_t row_count, block_rows;
  int64_t first_head, heads;       // query heads in head form
  int64_t query_width, key_width;  // H * D, K * D

  RankPart(const RunConfig& config, const AttentionProblem& problem, int rank) {
    const RankPlace place = place_of(config.parallel, rank);
    const int r = place.ring, u = place.ulysses;
    const AttentionLayout layout = attention_layout(config, problem, slice_of(config, rank));
    batch = layout.batch;
    first_batch = slice_of(config, rank) * batch;
    for (int64_t b = 0; b < batch; ++b) {
      const Placement& placement = layout.rows.empty() ? layout.placement : layout.rows[b];
      rows.push_back(stretches_of(placement.local_rows(r, u)));
      block.push_back(stretches_of(placement.ring_block(r)));
    }
    row_count = layout.placement.local_count(r, u);
    block_rows = layout.placement.ring_block_rows(r);
    first_head = layout.heads.query_begin(u);
    heads = layout.heads.query_count(u);
    query_width = layout.heads.query_heads() * layout.head_size;
    key_width = layout.heads.kv_heads() * layout.head_size;
  }
  int64_t query_elements() const { return batch * row_count * query_width; }
  int64_t key_elements() const { return batch * row_count * key_width; }
  int64_t lse_elements() const { return batch * heads * block_rows; }
};

// Element by element into the type of the run.
template <class T>
std::vector<T> take(const ReadPart& read, const RankPart& part, int64_t length, int64_t width) {
  std::vector<T> rows(part.batch * part.row_count * width);
  std::vector<float> read_here;
  for (int64_t b = 0; b < part.batch; ++b) {
    for (const Stretch& stretch : part.rows[b]) {
      read_here.resize(stretch.count * width);
      read(((part.first_batch + b) * length + stretch.position) * width, read_here);
      T* to = rows.data() + (b * part.row_count + stretch.row) * width;
      for (float x : read_here) *to++ = T(x);
    }
  }
  return rows;
}

// Back to natural order. Returns the rest of `from`.
std::span<const float> give_rows(std::span<const float> from, const RankPart& part, int64_t length,
                                 int64_t width, std::vector<float>& whole) {
  for (int64_t b = 0; b < part.batch; ++b) {
    for (const Stretch& stretch : part.rows[b]) {
      const auto piece =
          from.subspan((b * part.row_count + stretch.row) * width, stretch.count * width);
      std::copy(piece.begin(), piece.end(),
                whole.begin() + ((part.first_batch + b) * length + stretch.position) * width);
    }
  }
  return from.subspan(part.batch * part.row_count * width);
}

void give_lse(std::span<const float> from, const RankPart& part, const AttentionProblem& problem,
              std::vector<float>& whole) {
  for (int64_t b = 0; b < part.batch; ++b) {
    for (int64_t h = 0; h < part.heads; ++h) {
      const int64_t head = (part.first_batch + b) * problem.query_heads + part.first_head + h;
      for (const Stretch& stretch : part.block[b]) {
        const auto piece =
            from.subspan((b * part.heads + h) * part.block_rows + stretch.row, stretch.count);
        std::copy(piece.begin(), piece.end(),
                  whole.begin() + head * problem.length + stretch.position);
      }
    }
  }
}

// The result of one rank as one message: out, dquery, dkey, dvalue, lse.
template <class T>
void append(const std::vector<T>& values, std::vector<float>& message) {
  for (const T& value : values) message.push_back(to_float(value));
}

void unpack(std::span<const float> message, const RankPart& part, const AttentionProblem& problem,
            AttentionResult& result) {
  message = give_rows(message, part, problem.length, part.query_width, result.out);
  if (problem.dout) {
    message = give_rows(message, part, problem.length, part.query_width, result.dquery);
    message = give_rows(message, part, problem.length, part.key_width, result.dkey);
    message = give_rows(message, part, problem.length, part.key_width, result.dvalue);
  }
  give_lse(message, part, problem, result.lse);
}

// Rank after rank, so that rank 0 holds one foreign part at a time.
void bring_to_rank_0(const std::vector<float>& mine, const RunConfig& config,
                     const AttentionProblem& problem, Group& world, AttentionResult& result) {
  if (world.rank() != 0) {
    RequestPtr request = world.send(std::as_bytes(std::span(mine)), 0, Tag::kUser);
    world.wait(request);
    return;
  }
  const int64_t rows = problem.batch * problem.length;
  const int64_t queries = rows * problem.query_heads * problem.head_size;
  const int64_t keys = rows * problem.kv_heads * problem.head_size;
  result.out.resize(queries);
  result.lse.resize(rows * problem.query_heads);
  if (problem.dout) {
    result.dquery.resize(queries);
    result.dkey.resize(keys);
    result.dvalue.resize(keys);
  }
  unpack(mine, RankPart(config, problem, 0), problem, result);
  std::vector<float> message;
  for (int rank = 1; rank < world.size(); ++rank) {
    const RankPart part(config, problem, rank);
    message.resize(part.query_elements() * (problem.dout ? 2 : 1) +
                   part.key_elements() * (problem.dout ? 2 : 0) + part.lse_elements());
    RequestPtr request =
        world.receive(std::as_writable_bytes(std::span(message)), rank, Tag::kUser);
    world.wait(request);
    unpack(message, part, problem, result);
  }
}

// The inputs and results of one rank, in the type of the run.
template <class T>
struct RankTensors {
  std::vector<T> q, k, v, dout, out, dq, dk, dv;

  RankTensors(const AttentionProblem& problem, const RankPart& part)
      : q(take<T>(problem.query, part, problem.length, part.query_width)),
        k(take<T>(problem.key, part, problem.length, part.key_width)),
        v(take<T>(problem.value, part, problem.length, part.key_width)),
        out(q.size()) {
    if (!problem.dout) return;
    dout = take<T>(problem.dout, part, problem.length, part.query_width);
    dq.resize(q.size());
    dk.resize(k.size());
    dv.resize(v.size());
  }
};

template <class T>
std::unique_ptr<RankTensors<T>> take_together(const AttentionProblem& problem, const RankPart& part,
                                              Group& world) {
  std::unique_ptr<RankTensors<T>> tensors;
  std::string error;
  try {
    tensors = std::make_unique<RankTensors<T>>(problem, part);
  } catch (const UserError& problem_of_rank) {
    error = problem_of_rank.what();
  }
  fail_together(world, error);
  return tensors;
}

// Forward and backward; returns the seconds they took.
template <class T>
double attend(const AttentionProblem& problem, const RankPart& part, RankTensors<T>& tensors,
              ParallelAttention<T>& attention) {
  const auto begin = std::chrono::steady_clock::now();
  const auto queries = [&](std::vector<T>& x) {
    return View<T, 4>(x.data(),
                      {part.batch, part.row_count, problem.query_heads, problem.head_size});
  };
  const auto keys = [&](std::vector<T>& x) {
    return View<T, 4>(x.data(), {part.batch, part.row_count, problem.kv_heads, problem.head_size});
  };
  attention.forward(queries(tensors.q), keys(tensors.k), keys(tensors.v), queries(tensors.out));
  if (problem.dout) {
    attention.backward(queries(tensors.dout), queries(tensors.dq), keys(tensors.dk),
                       keys(tensors.dv));
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The numbers per head, over all ranks.
template <class T>
void reduce_heads(const AttentionProblem& problem, const ParallelAttention<T>& attention,
                  Group& world, AttentionResult& result) {
  result.max_logits.assign(problem.query_heads, -std::numeric_limits<float>::infinity());
  const std::vector<float> most = attention.max_logits();
  std::copy(most.begin(), most.end(), result.max_logits.begin() + attention.first_head());
  all_reduce_max(world, result.max_logits);
  if (problem.sinks.empty() || !problem.dout) return;
  std::vector<double> sums(problem.query_heads, 0);
  const std::vector<float> mine = attention.dsinks();
  std::copy(mine.begin(), mine.end(), sums.begin() + attention.first_head());
  all_reduce_sum(world, sums);
  result.dsinks.assign(sums.begin(), sums.end());
}

template <class T>
AttentionResult run_typed(const RunConfig& config, const AttentionProblem& problem, Group& world) {
  const AttentionLayout layout = attention_layout(config, problem, slice_of(config, world.rank()));
  Mesh mesh(world, config.parallel.data, config.parallel.fsdp, config.parallel.ring_size,
            config.parallel.ulysses_size,
            {config.parallel.ring_nodes, config.parallel.ulysses_nodes});
  const RankPart part(config, problem, world.rank());

  const auto tensors = take_together<T>(problem, part, world);
  ParallelAttentionOptions options = call_options(config, problem.head_size);
  options.record_max_logits = true;
  ParallelAttention<T> attention(layout, options, mesh.ring(), mesh.ulysses());
  attention.use_sinks(problem.sinks);
  if (!problem.segments.empty()) {
    attention.set_segments(
        std::span(problem.segments)
            .subspan(part.first_batch * problem.length, part.batch * problem.length));
  }
  AttentionResult result;
  result.seconds = attend(problem, part, *tensors, attention);
  reduce_heads(problem, attention, world, result);
  std::vector<float> message;
  for (const auto* values : {&tensors->out, &tensors->dq, &tensors->dk, &tensors->dv}) {
    append(*values, message);
  }
  const View<const float, 3> lse = attention.lse();
  message.insert(message.end(), lse.data(), lse.data() + lse.size());
  bring_to_rank_0(message, config, problem, world, result);
  return result;
}

}  // namespace

AttentionLayout attention_layout(const RunConfig& config, const AttentionProblem& problem,
                                 int64_t slice) {
  const ParallelConfig& parallel = config.parallel;
  const int slices = parallel.data * parallel.fsdp;
  ODYSSEY_CHECK(problem.batch % slices == 0, "{} rows, {} slices", problem.batch, slices);
  AttentionLayout layout{
      Placement(parallel.placement, problem.length, parallel.ring_size, parallel.ulysses_size),
      HeadMap(problem.query_heads, problem.kv_heads, parallel.ulysses_size)};
  layout.outer_gather = parallel.outer_gather;
  layout.batch = problem.batch / slices;
  layout.head_size = problem.head_size;
  layout.element_bytes = config.model.data_type == DataType::kFloat32 ? 4 : 2;
  layout.segmented = !problem.segments.empty();
  layout = with_mask(std::move(layout), config.model.masks.front());
  if (problem.segments.empty()) return layout;
  const int64_t ids = layout.batch * problem.length;
  return of_batch(std::move(layout), std::span(problem.segments).subspan(slice * ids, ids));
}

float attention_scale(const RunConfig& config, int64_t head_size) {
  if (config.model.attention_scale != 0) return config.model.attention_scale;
  return static_cast<float>(1 / std::sqrt(static_cast<double>(head_size)));
}

ParallelAttentionOptions call_options(const RunConfig& config, int64_t head_size) {
  ParallelAttentionOptions options;
  options.scale = attention_scale(config, head_size);
  options.soft_cap = config.model.attention_soft_cap;
  return options;
}

AttentionResult run_attention(const RunConfig& config, const AttentionProblem& problem,
                              Group& world) {
  return config.model.data_type == DataType::kFloat32 ? run_typed<float>(config, problem, world)
                                                      : run_typed<bf16>(config, problem, world);
}

}  // namespace odyssey
