// SPDX-License-Identifier: Apache-2.0
// Every mesh that a number of ranks can form, and some that it cannot.
#include <gmock/gmock.h>

#include "odyssey/base/error.h"
#include "odyssey/comm/all_reduce.h"
#include "odyssey/comm/comm_cases.h"
#include "odyssey/comm/mesh.h"

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
          {"MeshRefusesOtherProducts", mesh_refuses_other_products}};
}

}  // namespace odyssey
