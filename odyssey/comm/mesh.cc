// SPDX-License-Identifier: Apache-2.0
#include "odyssey/comm/mesh.h"

#include "odyssey/base/error.h"

namespace odyssey {
namespace {

void check_axes(const Group& world, int data, int fsdp, int ring, int ulysses) {
  bool fits = true;
  int64_t left = world.size();
  for (const int axis : {data, fsdp, ring, ulysses}) {
    fits = fits && axis >= 1 && left % axis == 0;
    if (fits) left /= axis;
  }
  if (fits && left == 1) return;
  throw user_error("mesh", fmt::format("axes that multiply to the {} ranks started", world.size()),
                   fmt::format("data {} x fsdp {} x context {} x context_usp_ulysses {}", data,
                               fsdp, ring, ulysses),
                   "Change the *_parallelism keys, or start another number of ranks");
}

}  // namespace

RankPlace place_of(int world_rank, int data, int fsdp, int ring, int ulysses, NodeAxes nodes) {
  const int inner_ring = ring / nodes.ring, inner_ulysses = ulysses / nodes.ulysses;
  // From the innermost axis outwards.
  int rest = world_rank;
  const auto next = [&](int size) {
    const int index = rest % size;
    rest /= size;
    return index;
  };
  RankPlace place;
  place.ulysses = next(inner_ulysses);
  place.ring = next(inner_ring);
  place.fsdp = next(fsdp);
  place.data = next(data);
  place.ulysses += next(nodes.ulysses) * inner_ulysses;
  place.ring += next(nodes.ring) * inner_ring;
  return place;
}

Mesh::Mesh(Group& world, int data, int fsdp, int ring, int ulysses, NodeAxes nodes)
    : world_(world) {
  check_axes(world, data, fsdp, ring, ulysses);
  ODYSSEY_CHECK(ring % nodes.ring == 0 && ulysses % nodes.ulysses == 0,
                "ring {} over {} nodes, Ulysses {} over {}", ring, nodes.ring, ulysses,
                nodes.ulysses);
  const auto [d, f, r, u] = place_of(world.rank(), data, fsdp, ring, ulysses, nodes);
  // A colour numbers the groups of one kind: the coordinates that their ranks have in common.
  data_ = world.split((f * ring + r) * ulysses + u, "data");
  fsdp_ = world.split((d * ring + r) * ulysses + u, "fsdp");
  ring_ = world.split((d * fsdp + f) * ulysses + u, "context");
  ulysses_ = world.split((d * fsdp + f) * ring + r, "context_usp_ulysses");
  sequence_ = world.split(d * fsdp + f, "sequence");
  shard_ = world.split(d, "shard");
}

}  // namespace odyssey
