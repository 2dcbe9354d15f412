// SPDX-License-Identifier: Apache-2.0
// barrier: no rank leaves before every rank has come.
#pragma once
#include "odyssey/comm/group.h"

namespace odyssey {

void barrier(Group& group);

}  // namespace odyssey
