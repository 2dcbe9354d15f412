// SPDX-License-Identifier: Apache-2.0
// broadcast: every rank gets the bytes of one rank.
#pragma once
#include "odyssey/comm/group.h"

namespace odyssey {

// The message has the same size on all ranks; nothing is sent when it is empty. A binomial tree.
void broadcast(Group& group, std::span<std::byte> message, int root);

}  // namespace odyssey
