// SPDX-License-Identifier: Apache-2.0
// Test bodies that every engine must pass. All ranks of a group run a case together; it works for
// any number of ranks. thread_group_test.cc and mpi_group_test.cc run them all.
#pragma once
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "odyssey/comm/group.h"

namespace odyssey {

struct CommCase {
  std::string name;
  std::function<void(Group&)> body;
  friend void PrintTo(const CommCase& one, std::ostream* out) { *out << one.name; }
};

// Point-to-point transfers, waits, splits, agreement.
std::vector<CommCase> group_cases();
std::vector<CommCase> mesh_cases();
// All collectives over a grid of sizes.
std::vector<CommCase> collective_cases();
// All of these.
std::vector<CommCase> all_comm_cases();

// Bytes that tell sender, receiver and place apart.
std::vector<std::byte> pattern_message(int sender, int receiver, int64_t size);

}  // namespace odyssey
