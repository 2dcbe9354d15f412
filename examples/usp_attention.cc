// SPDX-License-Identifier: Apache-2.0
// One sequence of 1,000 tokens over 6 thread ranks, a ring of 3 Ulysses pairs: forward and
// backward, each rank on its own tokens only. Prints what each rank holds, sends and computes.
#include <cmath>
#include <mutex>
#include <vector>

#include <fmt/core.h>

#include "odyssey/base/random.h"
#include "odyssey/comm/mesh.h"
#include "odyssey/comm/thread_group.h"
#include "odyssey/context/parallel_attention.h"

using namespace odyssey;

int main() {
  constexpr int kRing = 3, kUlysses = 2;
  constexpr int64_t kLength = 1000, kQueryHeads = 8, kKvHeads = 2, kHeadSize = 64;

  AttentionLayout layout{Placement(PlacementKind::kDualChunkSwap, kLength, kRing, kUlysses),
                         HeadMap(kQueryHeads, kKvHeads, kUlysses)};
  layout.head_size = kHeadSize;
  ParallelAttentionOptions options;
  options.scale = 1 / std::sqrt(static_cast<float>(kHeadSize));

  std::mutex print;
  run_on_threads(kRing * kUlysses, [&](Group& world) {
    Mesh mesh(world, /*data=*/1, /*fsdp=*/1, kRing, kUlysses);
    const int r = mesh.ring_index(), u = mesh.ulysses_index();
    ParallelAttention<float> attention(layout, options, mesh.ring(), mesh.ulysses());

    // This rank's tokens: runs of global positions, in the order in which they are stored.
    const std::vector<Run> runs = layout.placement.local_rows(r, u);
    const int64_t rows = count_rows(runs);
    const Random random(1, static_cast<uint64_t>(world.rank()));
    const auto normal = [&](int64_t heads) {
      std::vector<float> x(rows * heads * kHeadSize);
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.normal(i));
      return x;
    };
    std::vector<float> q = normal(kQueryHeads), k = normal(kKvHeads), v = normal(kKvHeads);
    std::vector<float> out(q.size()), dq(q.size()), dk(k.size()), dv(v.size());
    const auto view = [&](std::vector<float>& x, int64_t heads) {
      return View<float, 4>(x.data(), {1, rows, heads, kHeadSize});  // [B, T, heads, D]
    };
    attention.forward(view(q, kQueryHeads), view(k, kKvHeads), view(v, kKvHeads),
                      view(out, kQueryHeads));
    attention.backward(/*dout=*/view(out, kQueryHeads), view(dq, kQueryHeads), view(dk, kKvHeads),
                       view(dv, kKvHeads));

    const std::lock_guard lock(print);
    fmt::print("rank {} (ring {}, ulysses {}): tokens", world.rank(), r, u);
    for (const Run& run : runs)
      fmt::print(" {}..{}", run.first, run.first + (run.count - 1) * run.stride);
    int64_t pairs = 0;
    for (const Step& step : forward_schedule(layout, r, u)) pairs += step.pairs;
    fmt::print("; {} visible pairs; sent {} bytes\n", pairs,
               mesh.ring().traffic().bytes_sent + mesh.ulysses().traffic().bytes_sent);
  });
  return 0;
}
