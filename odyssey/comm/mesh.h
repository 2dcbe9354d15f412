// SPDX-License-Identifier: Apache-2.0
// Mesh: the ranks of a run as a grid of axes, and a group along each. From outer to inner: data,
// fsdp, context (the ring), context_usp_ulysses. The chatty head exchange is innermost, so it stays
// among neighbouring ranks of a node, while the ring crosses nodes.
//
// Where an axis is told to lie across nodes, that part of it goes outside of everything:
//   nodes of the ring, nodes of Ulysses | data, fsdp, ring inside a node, Ulysses inside a node
// so that the ranks of a node are neighbours in the world, the order in which mpirun and srun fill
// nodes. comm/nodes.h checks that against the hosts.
#pragma once
#include <memory>

#include "odyssey/comm/group.h"

namespace odyssey {

// How much of the two axes of a sequence lies across nodes; divides their sizes.
struct NodeAxes {
  int ring = 1, ulysses = 1;
};

// Coordinates of a rank.
struct RankPlace {
  int data = 0, fsdp = 0, ring = 0, ulysses = 0;
};
RankPlace place_of(int world_rank, int data, int fsdp, int ring, int ulysses, NodeAxes nodes = {});

class Mesh {
 public:
  // Collective. Throws UserError unless the axes multiply to the size of the world, which must
  // outlive the mesh. The groups take over the limits that the world has now.
  Mesh(Group& world, int data, int fsdp, int ring, int ulysses, NodeAxes nodes = {});

  Group& world() { return world_; }
  // Ranks that differ in one axis only.
  Group& data() { return *data_; }
  Group& fsdp() { return *fsdp_; }
  Group& ring() { return *ring_; }        // "context"
  Group& ulysses() { return *ulysses_; }  // "context_usp_ulysses"
  // Ranks that share the sequences of one batch slice: ring x ulysses.
  Group& sequence() { return *sequence_; }
  // Ranks that share one copy of the weights: fsdp x ring x ulysses.
  Group& shard() { return *shard_; }

  // Coordinates of this rank.
  int data_index() const { return data_->rank(); }
  int fsdp_index() const { return fsdp_->rank(); }
  int ring_index() const { return ring_->rank(); }
  int ulysses_index() const { return ulysses_->rank(); }
  // Which of the batch_slices() slices of the batch rows this rank works on.
  int batch_index() const { return data_index() * fsdp_->size() + fsdp_index(); }
  int batch_slices() const { return data_->size() * fsdp_->size(); }

 private:
  Group& world_;
  std::unique_ptr<Group> data_, fsdp_, ring_, ulysses_, sequence_, shard_;
};

}  // namespace odyssey
