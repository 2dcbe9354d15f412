// SPDX-License-Identifier: Apache-2.0
// all_to_all: every rank has parts for every other rank. Carries the head exchange.
#pragma once
#include "odyssey/comm/group.h"

namespace odyssey {

// What goes to, or comes from, another rank: it may lie anywhere, so that tensors that are
// contiguous at one end are neither packed nor unpacked there.
template <class Byte>
struct Part {
  int rank;
  std::span<Byte> bytes;
};

// Both lists by ascending rank, none of them this one. What several parts of one rank bring
// matches, in order and sizes, those that it sends. Empty parts send no message.
void all_to_all(Group& group, std::span<const Part<const std::byte>> send,
                std::span<const Part<std::byte>> receive);

}  // namespace odyssey
