// SPDX-License-Identifier: Apache-2.0
// Nodes: which ranks share a host. Axes that are told to lie across nodes are checked against it
// before anything is exchanged along them.
#pragma once
#include <vector>

#include "odyssey/comm/group.h"

namespace odyssey {

// For every rank the lowest rank of its host. The environment variable ODYSSEY_RANKS_PER_NODE=n
// simulates hosts of n neighbouring ranks each, to rehearse a cluster on one machine. Collective.
std::vector<int> hosts_of_ranks(Group& world);

// Throws UserError on every rank unless the ranks fill `nodes` hosts evenly and in order: ranks
// 0..n-1 on one, n..2n-1 on another. One node is always right. Thread ranks are all on one host:
// for them it is checked only where hosts are simulated. Collective.
void check_nodes(Group& world, int nodes);

}  // namespace odyssey
