// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_attention_run.h"

#include <algorithm>
#include <set>

#include "apps/attention_run.h"
#include "apps/attention_tensors.h"
#include "apps/cores.h"
#include "odyssey/base/parallel_for.h"
#include "odyssey/base/random.h"
#include "odyssey/comm/all_gather.h"
#include "odyssey/comm/all_reduce.h"
#include "odyssey/comm/barrier.h"
#include "odyssey/comm/mesh.h"
#include "odyssey/context/parallel_attention.h"
#include "odyssey/kernels/isa.h"

namespace odyssey {
namespace {

// Ring and Ulysses place of a rank: the Ulysses axis is innermost (comm/mesh.h).
struct Place {
  int r, u;
};
Place place_of(const AttentionLayout& layout, int rank) {
  return {rank / layout.ulysses_size(), rank % layout.ulysses_size()};
}

int64_t rows_of(const AttentionLayout& layout, int rank) {
  const Place place = place_of(layout, rank);
  return layout.placement.local_count(place.r, place.u);
}

// What one rank tells of one run; a plain struct, it travels as bytes.
struct RankRun {
  double seconds = 0, forward_cpu = 0, backward_cpu = 0, waiting = 0, bytes_sent = 0;
  double cpu() const { return forward_cpu + backward_cpu; }
};

Traffic traffic_of(Mesh& mesh) {
  const Traffic &ring = mesh.ring().traffic(), &ulysses = mesh.ulysses().traffic();
  return {ring.bytes_sent + ulysses.bytes_sent, ring.messages_sent + ulysses.messages_sent,
          ring.seconds_waiting + ulysses.seconds_waiting};
}

// Rows [first, first + T) of the tensors are those of this rank.
template <class T>
RankRun run_rank(const BenchAttentionRow& row, AttentionTensors<T>& tensors, int64_t first,
                 Group& group) {
  set_thread_count(row.threads);
  const AttentionLayout layout = row.layout();
  Mesh mesh(group, 1, 1, layout.ring_size(), layout.ulysses_size());
  ParallelAttention<T> attention(layout, call_options(row.config, layout.head_size), mesh.ring(),
                                 mesh.ulysses());

  const int64_t rows = rows_of(layout, group.rank());
  const auto queries = [&](Buffer<T>& x) {
    return View<T, 4>(x.data() + first * tensors.query_width,
                      {1, rows, layout.heads.query_heads(), layout.head_size});
  };
  const auto keys = [&](Buffer<T>& x) {
    return View<T, 4>(x.data() + first * tensors.key_width,
                      {1, rows, layout.heads.kv_heads(), layout.head_size});
  };
  // A call on padding alone, which sees nothing: the kernels take their scratch, every page of it
  // and of the buffers is there, and nothing is computed.
  attention.set_segments(std::vector<int32_t>(row.length, 0));
  attention.forward(queries(tensors.q), keys(tensors.k), keys(tensors.v), queries(tensors.out));
  attention.backward(queries(tensors.dout), queries(tensors.dq), keys(tensors.dk),
                     keys(tensors.dv));
  attention.set_segments(row.segments);
  barrier(group);
  const Traffic before = traffic_of(mesh);
  const double start = seconds_now(Clock::kWall), cpu_start = seconds_now(Clock::kCpu);
  attention.forward(queries(tensors.q), keys(tensors.k), keys(tensors.v), queries(tensors.out));
  const double cpu_middle = seconds_now(Clock::kCpu);
  attention.backward(queries(tensors.dout), queries(tensors.dq), keys(tensors.dk),
                     keys(tensors.dv));
  RankRun run;
  run.backward_cpu = seconds_now(Clock::kCpu) - cpu_middle;
  run.forward_cpu = cpu_middle - cpu_start;
  run.seconds = seconds_now(Clock::kWall) - start;
  const Traffic after = traffic_of(mesh);
  run.waiting = after.seconds_waiting - before.seconds_waiting;
  run.bytes_sent = static_cast<double>(after.bytes_sent - before.bytes_sent);
  return run;
}

BenchAttentionRun summary(const std::vector<RankRun>& runs) {
  BenchAttentionRun all;
  const auto ranks = static_cast<double>(runs.size());
  for (const RankRun& run : runs) {
    all.seconds = std::max(all.seconds, run.seconds);
    all.busiest_cpu_seconds = std::max(all.busiest_cpu_seconds, run.cpu());
    all.mean_cpu_seconds += run.cpu() / ranks;
    all.forward_cpu_seconds += run.forward_cpu;
    all.backward_cpu_seconds += run.backward_cpu;
    all.most_bytes_sent = std::max(all.most_bytes_sent, run.bytes_sent);
    all.mean_bytes_sent += run.bytes_sent / ranks;
    all.waiting_seconds += run.waiting / ranks;
  }
  return all;
}

}  // namespace

class BenchAttentionTensors {
 public:
  virtual ~BenchAttentionTensors() = default;
  virtual RankRun run(const BenchAttentionRow& row, int64_t first, Group& group) = 0;
};

namespace {

template <class T>
class TypedTensors final : public BenchAttentionTensors {
 public:
  TypedTensors(int64_t rows, const ModelConfig& model) : tensors_(rows, model) {}
  RankRun run(const BenchAttentionRow& row, int64_t first, Group& group) override {
    return run_rank<T>(row, tensors_, first, group);
  }

 private:
  AttentionTensors<T> tensors_;
};

}  // namespace

AttentionLayout BenchAttentionRow::layout() const {
  AttentionProblem problem;
  problem.length = length;
  problem.query_heads = config.model.query_heads;
  problem.kv_heads = config.model.kv_heads;
  problem.head_size = config.model.head_size;
  problem.segments = segments;
  return attention_layout(config, problem);
}

int64_t BenchAttentionRow::bytes_needed(int ranks_here) const {
  const AttentionLayout l = layout();
  const int64_t tensors = 4 * length * (l.heads.query_heads() + l.heads.kv_heads()) * l.head_size;
  const int64_t workspace = config.model.data_type == DataType::kFloat32
                                ? ParallelAttention<float>::workspace_bytes(l)
                                : ParallelAttention<bf16>::workspace_bytes(l);
  return tensors * l.element_bytes + workspace * std::min(ranks(), ranks_here);
}

BenchAttentionWork work_of(const BenchAttentionRow& row) {
  const AttentionLayout layout = row.layout();
  const Run all[] = {{0, row.length, 1}};
  BenchAttentionWork work;
  double most = 0;
  for (int rank = 0; rank < row.ranks(); ++rank) {
    const auto [r, u] = place_of(layout, rank);
    const std::vector<Run> queries = block_runs(layout, r).front();
    std::vector<int32_t> segments;
    for (const Run& run : queries) {
      for (int64_t i = 0; i < run.count && !row.segments.empty(); ++i) {
        segments.push_back(row.segments[run.first + i * run.stride]);
      }
    }
    const int64_t pairs =
        count_visible_pairs({{queries, segments}, {all, row.segments}, layout.kind, layout.window});
    const auto own = static_cast<double>(pairs * layout.heads.query_count(u));
    work.pairs_times_heads += own;
    most = std::max(most, own);
    work.full_bytes += static_cast<double>(sent_bytes(layout, r, u).untrimmed);
  }
  work.full_bytes /= row.ranks();
  work.busiest_over_mean = most / (work.pairs_times_heads / row.ranks());
  return work;
}

std::vector<int32_t> random_documents(int64_t length, int64_t documents) {
  if (documents == 1) return {};
  const Random random(1, 7);
  std::set<int64_t> begins;  // of all documents but the first
  for (uint64_t i = 0; static_cast<int64_t>(begins.size()) < documents - 1; ++i) {
    begins.insert(1 + static_cast<int64_t>(random.integer(i, static_cast<uint64_t>(length - 1))));
  }
  std::vector<int32_t> ids(length);
  for (int64_t at = 0, id = 1; at < length; ++at) {
    if (begins.contains(at)) ++id;
    ids[at] = static_cast<int32_t>(id);
  }
  return ids;
}

BenchAttentionRunner::BenchAttentionRunner(const BenchRanks& ranks,
                                           const std::vector<BenchAttentionRow>& rows)
    : ranks_(ranks) {
  // Threads share the tensors of all rows of the sequence; a process holds its own part only.
  int64_t most = 0;
  for (const BenchAttentionRow& row : rows) {
    if (!ranks.is_mpi()) {
      most = std::max(most, row.length);
    } else if (ranks.world().rank() < row.ranks()) {
      most = std::max(most, rows_of(row.layout(), ranks.world().rank()));
    }
  }
  const ModelConfig& model = rows.front().config.model;
  if (model.data_type == DataType::kFloat32) {
    tensors_ = std::make_unique<TypedTensors<float>>(most, model);
  } else {
    tensors_ = std::make_unique<TypedTensors<bf16>>(most, model);
  }
}

BenchAttentionRunner::~BenchAttentionRunner() = default;

double BenchAttentionRunner::live_peak(const BenchAttentionRow& row) const {
  const Isa isa = isa_in_use();
  const PeakKind kind =
      row.config.model.data_type == DataType::kFloat32 ? fp32_peak(isa) : bf16_peak(isa);
  if (!ranks_.is_mpi()) {
    return peak_tflops(kind, std::max(row.threads, ranks_.threads_in_place_of(row.ranks())));
  }
  double sum = 0;
  ranks_.run(row.ranks(), [&](Group& group) {
    barrier(group);
    sum = peak_tflops(kind, row.threads);
    all_reduce_sum(group, std::span(&sum, 1));
  });
  return sum;
}

BenchAttentionRun BenchAttentionRunner::run(const BenchAttentionRow& row) {
  const double before = live_peak(row);
  const AttentionLayout layout = row.layout();
  std::vector<RankRun> all(row.ranks());
  ranks_.run(row.ranks(), [&](Group& group) {
    int64_t first = 0;
    for (int rank = 0; rank < group.rank() && !ranks_.is_mpi(); ++rank) {
      first += rows_of(layout, rank);
    }
    const RankRun mine = tensors_->run(row, first, group);
    std::vector<RankRun> gathered(group.size());
    const std::vector<int64_t> bytes(group.size(), sizeof(RankRun));
    all_gather(group, std::as_bytes(std::span(&mine, 1)),
               std::as_writable_bytes(std::span(gathered)), bytes);
    if (group.rank() == 0) all = gathered;
  });
  BenchAttentionRun result = summary(all);
  result.live_peak_tflops = (before + live_peak(row)) / 2;
  return result;
}

}  // namespace odyssey
