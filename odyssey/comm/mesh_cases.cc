// SPDX-License-Identifier: Apache-2.0
// Every mesh that a number of ranks can form, and some that it cannot.
#include <gmock/gmock.h>

#include "odyssey/base/error.h"
#include "odyssey/comm/all_reduce.h"
#include "odyssey/comm/comm_cases.h"
#include "odyssey/comm/mesh.h"
#include "odyssey/comm/nodes.h"

namespace odyssey {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

// The world ranks that are in a group, found by their sums.
void expect_members(Group& part, int world_rank, const std::vector<int>& members) {
  std::vector<float> flags(64, 0.0f), expected(64, 0.0f);
  flags[static_cast<size_t>(world_rank)] = static_cast<float>(part.rank() + 1);
  for (size_t i = 0; i < members.size(); ++i) {
    expected.at(static_cast<size_t>(members[i])) = static_cast<float>(i + 1);
  }
  all_reduce_sum(part, flags);
  EXPECT_EQ(flags, expected) << part.name();
}

void check_mesh(Group& world, int data, int fsdp, int ring, int ulysses) {
  Mesh mesh(world, data, fsdp, ring, ulysses);
  const int rank = world.rank();
  EXPECT_EQ(((mesh.data_index() * fsdp + mesh.fsdp_index()) * ring + mesh.ring_index()) * ulysses +
                mesh.ulysses_index(),
            rank);
  EXPECT_EQ(mesh.batch_index(), rank / (ring * ulysses));
  EXPECT_EQ(mesh.batch_slices(), data * fsdp);
  EXPECT_EQ(&mesh.world(), &world);
  const auto along = [&](int first, int count, int stride) {
    std::vector<int> members;
    for (int i = 0; i < count; ++i) members.push_back(first + i * stride);
    return members;
  };
  const int sequence = ring * ulysses, shard = fsdp * sequence;
  expect_members(mesh.ulysses(), rank, along(rank - mesh.ulysses_index(), ulysses, 1));
  expect_members(mesh.ring(), rank, along(rank - mesh.ring_index() * ulysses, ring, ulysses));
  expect_members(mesh.fsdp(), rank, along(rank - mesh.fsdp_index() * sequence, fsdp, sequence));
  expect_members(mesh.data(), rank, along(rank - mesh.data_index() * shard, data, shard));
  expect_members(mesh.sequence(), rank, along(rank / sequence * sequence, sequence, 1));
  expect_members(mesh.shard(), rank, along(rank / shard * shard, shard, 1));
  EXPECT_EQ(mesh.ring().name(), "context");
  EXPECT_EQ(mesh.ulysses().name(), "context_usp_ulysses");
}

void mesh_has_every_axis_in_order(Group& world) {
  const int size = world.size();
  for (int data = 1; data <= size; ++data) {
    for (int fsdp = 1; fsdp <= size; ++fsdp) {
      for (int ring = 1; ring <= size; ++ring) {
        const int rest = data * fsdp * ring;
        if (size % rest == 0) check_mesh(world, data, fsdp, ring, size / rest);
      }
    }
  }
}

// Ring and Ulysses over nodes: the part inside a node is a stretch of neighbouring ranks, and every
// rank is where place_of says.
void mesh_keeps_node_parts_together(Group& world) {
  const int size = world.size();
  for (int ring_nodes = 1; ring_nodes <= size; ++ring_nodes) {
    for (int ulysses_nodes = 1; ring_nodes * ulysses_nodes <= size; ++ulysses_nodes) {
      const int nodes = ring_nodes * ulysses_nodes;
      if (size % nodes != 0) continue;
      const int inside = size / nodes;
      for (int inner_ring = 1; inner_ring <= inside; ++inner_ring) {
        if (inside % inner_ring != 0) continue;
        const int inner_ulysses = inside / inner_ring;
        const int ring = ring_nodes * inner_ring, ulysses = ulysses_nodes * inner_ulysses;
        Mesh mesh(world, 1, 1, ring, ulysses, {ring_nodes, ulysses_nodes});
        std::vector<int> ring_members(static_cast<size_t>(ring)),
            ulysses_members(static_cast<size_t>(ulysses));
        for (int rank = 0; rank < size; ++rank) {
          const RankPlace place = place_of(rank, 1, 1, ring, ulysses, {ring_nodes, ulysses_nodes});
          // Ranks of one node differ in the inner parts only.
          const RankPlace first =
              place_of(rank / inside * inside, 1, 1, ring, ulysses, {ring_nodes, ulysses_nodes});
          EXPECT_EQ(place.ring / inner_ring, first.ring / inner_ring);
          EXPECT_EQ(place.ulysses / inner_ulysses, first.ulysses / inner_ulysses);
          if (place.ulysses == mesh.ulysses_index())
            ring_members.at(static_cast<size_t>(place.ring)) = rank;
          if (place.ring == mesh.ring_index())
            ulysses_members.at(static_cast<size_t>(place.ulysses)) = rank;
        }
        expect_members(mesh.ring(), world.rank(), ring_members);
        expect_members(mesh.ulysses(), world.rank(), ulysses_members);
      }
    }
  }
}

// All tests run on one host.
void hosts_are_found(Group& world) {
  EXPECT_EQ(hosts_of_ranks(world), std::vector<int>(static_cast<size_t>(world.size()), 0));
  EXPECT_NO_THROW(check_nodes(world, 1));
  if (world.size() == 1) return;
  if (world.is_one_process()) {
    EXPECT_NO_THROW(check_nodes(world, world.size()));
    return;
  }
  EXPECT_THAT(refusal([&] { check_nodes(world, world.size()); }),
              HasSubstr(fmt::format("expected {} hosts with 1 neighbouring rank each, got 1 host: "
                                    "ranks 0-{}. Start 1 on each host",
                                    world.size(), world.size() - 1)));
}

void mesh_refuses_other_products(Group& world) {
  const int size = world.size();
  EXPECT_THAT(refusal([&] { Mesh(world, 1, size + 1, 3, 1); }),
              AllOf(HasSubstr(fmt::format("the {} ranks started", size)),
                    HasSubstr(fmt::format("data 1 x fsdp {} x context 3 x context_usp_ulysses 1",
                                          size + 1))));
  refusal([&] { Mesh(world, 0, size, 1, 1); });
  refusal([&] { Mesh(world, -1, -size, 1, 1); });
  refusal([&] { Mesh(world, 65536, 65536, 65536, 65536); });
  if (size > 1) refusal([&] { Mesh(world, 1, 1, 1, 1); });
}

}  // namespace

std::vector<CommCase> mesh_cases() {
  return {{"MeshHasEveryAxisInOrder", mesh_has_every_axis_in_order},
          {"MeshKeepsNodePartsTogether", mesh_keeps_node_parts_together},
          {"HostsAreFound", hosts_are_found},
          {"MeshRefusesOtherProducts", mesh_refuses_other_products}};
}

}  // namespace odyssey
