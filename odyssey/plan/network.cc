// SPDX-License-Identifier: Apache-2.0
#include "odyssey/plan/network.h"

#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "odyssey/base/error.h"

namespace odyssey {
namespace {

constexpr double kGiga = 1e9;

constexpr size_t kMostAxes = 6;  // of a torus, and of ranks

// Tries every way to give whole torus axes to axes of ranks. True where one fits; among those the
// innermost axis of ranks has most torus axes, then the next.
bool map_whole_axes(std::span<const int64_t> torus, std::span<const int64_t> sizes,
                    TorusMapping& mapping) {
  const size_t ranks = sizes.size();
  std::array<size_t, kMostAxes> owner{}, best_owner{};  // of each torus axis
  std::array<int64_t, kMostAxes> best{};                // torus axes of each, innermost first
  bool found = false;
  for (bool more = true; more;) {
    std::array<int64_t, kMostAxes> product{}, count{};
    product.fill(1);
    for (size_t axis = 0; axis < torus.size(); ++axis) {
      product[owner[axis]] *= torus[axis];
      count[ranks - 1 - owner[axis]] += torus[axis] > 1;
    }
    if (std::equal(sizes.begin(), sizes.end(), product.begin()) && (!found || best < count)) {
      found = true;
      best = count;
      best_owner = owner;
    }
    // The next way, as a number of torus.size() digits.
    more = false;
    for (size_t axis = 0; axis < torus.size() && !more; ++axis) {
      more = ++owner[axis] < ranks;
      if (!more) owner[axis] = 0;
    }
  }
  mapping.parts.assign(ranks, {});
  for (size_t axis = 0; found && axis < torus.size(); ++axis) {
    if (torus[axis] == 1) continue;
    mapping.parts[best_owner[axis]].push_back({static_cast<int>(axis), torus[axis], true});
  }
  return found;
}

// Innermost first: as much of the fullest torus axis as divides the size, until the size is used
// up.
void map_split_axes(std::span<const int64_t> torus, std::span<const int64_t> sizes,
                    TorusMapping& mapping) {
  std::vector<int64_t> left(torus.begin(), torus.end());
  mapping.parts.assign(sizes.size(), {});
  for (size_t i = sizes.size(); i-- > 0;) {
    for (int64_t size = sizes[i]; size > 1;) {
      size_t best = 0;
      for (size_t axis = 0; axis < left.size(); ++axis) {
        if (std::gcd(size, left[axis]) > std::gcd(size, left[best])) best = axis;
      }
      const int64_t taken = std::gcd(size, left[best]);
      if (taken == 1) return;  // a size that no cut of the torus gives
      mapping.parts[i].push_back({static_cast<int>(best), taken, taken == torus[best]});
      left[best] /= taken;
      size /= taken;
    }
  }
}

// Directions in which a part of a torus axis moves data at once: a ring two, a line one.
double directions(const Hardware& hardware, const TorusPart& part) {
  return part.whole && hardware.wraps[part.axis] ? 2 : 1;
}

// All-gathers use all axes at once where the mesh is aligned, else the best one.
double gather_directions(const Hardware& hardware, const std::vector<TorusPart>& parts,
                         bool aligned) {
  double all = 0, best = 0;
  for (const TorusPart& part : parts) {
    all += directions(hardware, part);
    best = std::max(best, directions(hardware, part));
  }
  return aligned ? all : best;
}

// Links' worth of the payload on the busiest link of an all-to-all over n chips: a quarter of n on
// a line, half of that on a ring.
double exchange_load(const Hardware& hardware, const TorusPart& part) {
  return static_cast<double>(part.size) / 4 / directions(hardware, part);
}

Routes torus_routes(const Hardware& hardware, const ParallelConfig& parallel) {
  const std::array<int64_t, 4> sizes = {parallel.data, parallel.fsdp, parallel.ring_size,
                                        parallel.ulysses_size};
  constexpr int kData = 0, kRing = 2, kUlysses = 3;
  const TorusMapping mapping = map_to_torus(hardware.torus, sizes);
  const double link = hardware.link_gb_per_second * kGiga;
  Routes routes;
  routes.aligned = mapping.aligned;
  std::vector<TorusPart> sharing;  // of all ranks that share the weights
  for (int i = kData + 1; i < static_cast<int>(sizes.size()); ++i) {
    for (const TorusPart& part : mapping.parts[i]) {
      const auto same = std::find_if(sharing.begin(), sharing.end(),
                                     [&](const TorusPart& p) { return p.axis == part.axis; });
      if (same == sharing.end()) {
        sharing.push_back(part);
      } else {
        same->size *= part.size;
        same->whole = same->size == hardware.torus[part.axis];
      }
    }
  }
  routes.weights = link * gather_directions(hardware, sharing, mapping.aligned);
  routes.replicas = link * gather_directions(hardware, mapping.parts[kData], mapping.aligned);
  routes.gather = link * gather_directions(hardware, mapping.parts[kRing], mapping.aligned);
  double load = 0;
  for (const TorusPart& part : mapping.parts[kUlysses]) {
    load = std::max(load, exchange_load(hardware, part));
  }
  const double ulysses = parallel.ulysses_size;
  routes.exchange = load > 0 ? link / load * (ulysses - 1) / ulysses : 0;
  routes.neighbour = link;
  if (!mapping.aligned) {
    routes.finding = fmt::format(
        "this layout splits a torus axis: data {} x fsdp {} x ring {} x ulysses {} are not "
        "products "
        "of whole axes of {}, so gathers of weights use one axis at a time",
        parallel.data, parallel.fsdp, parallel.ring_size, parallel.ulysses_size,
        fmt::join(hardware.torus, " x "));
  }
  return routes;
}

// Chips of one node of a group of `size` ranks that lie `stride` apart.
double members_of_node(const Hardware& hardware, int64_t size, int64_t stride) {
  const int64_t fitting = std::max<int64_t>(1, hardware.chips_per_node / stride);
  return static_cast<double>(std::min(size, fitting));
}

// An all-gather crosses into each node once, over the network ports of all members there.
double node_gather(const Hardware& hardware, int64_t size, int64_t stride) {
  const double members = members_of_node(hardware, size, stride);
  const double node = hardware.node_gb_per_second * kGiga;
  if (members >= static_cast<double>(size)) return node;
  return std::min(node, members * hardware.network_gb_per_second * kGiga);
}

Routes node_routes(const Hardware& hardware, const ParallelConfig& parallel) {
  const double node = hardware.node_gb_per_second * kGiga;
  const double network = hardware.network_gb_per_second * kGiga;
  const int64_t ulysses = parallel.ulysses_size, ring = parallel.ring_size;
  Routes routes;
  routes.weights = node_gather(hardware, parallel.ranks() / parallel.data, 1);
  routes.replicas = node_gather(hardware, parallel.data, parallel.ranks() / parallel.data);
  routes.gather = node_gather(hardware, ring, ulysses);
  if (ulysses > 1) {
    const double inside = members_of_node(hardware, ulysses, 1) - 1;
    const double outside = static_cast<double>(ulysses) - 1 - inside;
    routes.exchange = static_cast<double>(ulysses - 1) / std::max(inside / node, outside / network);
  }
  const bool in_node = ring * ulysses <= hardware.chips_per_node;
  routes.neighbour = in_node ? node : network;
  if (ulysses > hardware.chips_per_node) {
    routes.finding = fmt::format(
        "the head exchange over {} ranks leaves the node of {} chips: a Ulysses size of at most {} "
        "keeps it inside",
        ulysses, hardware.chips_per_node, hardware.chips_per_node);
  }
  return routes;
}

}  // namespace

TorusMapping map_to_torus(std::span<const int64_t> torus, std::span<const int64_t> sizes) {
  int64_t chips = 1, ranks = 1;
  for (const int64_t size : torus) chips *= size;
  for (const int64_t size : sizes) ranks *= size;
  ODYSSEY_CHECK(chips == ranks, "{} chips, {} ranks", chips, ranks);
  ODYSSEY_CHECK(torus.size() <= kMostAxes && sizes.size() <= kMostAxes, "{} and {} axes",
                torus.size(), sizes.size());
  TorusMapping mapping;
  mapping.aligned = map_whole_axes(torus, sizes, mapping);
  if (!mapping.aligned) map_split_axes(torus, sizes, mapping);
  return mapping;
}

Routes route(const Hardware& hardware, const ParallelConfig& parallel) {
  return hardware.kind == MachineKind::kTpu ? torus_routes(hardware, parallel)
                                            : node_routes(hardware, parallel);
}

}  // namespace odyssey
