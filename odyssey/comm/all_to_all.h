// SPDX-License-Identifier: Apache-2.0
// all_to_all: every rank has a part for every rank. Carries the head exchange.
#pragma once
#include "odyssey/comm/group.h"

namespace odyssey {

// send holds the parts for ranks 0, 1, ... in this order without gaps, send_bytes their sizes;
// receive gets the parts from ranks 0, 1, ... likewise. Parts may be empty; empty parts send no
// message. send and receive may not overlap.
void all_to_all(Group& group, std::span<const std::byte> send, std::span<const int64_t> send_bytes,
                std::span<std::byte> receive, std::span<const int64_t> receive_bytes);

}  // namespace odyssey
