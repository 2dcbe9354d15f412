// SPDX-License-Identifier: Apache-2.0
// Whole attention calls, forward and backward, of some layouts on the ranks of one group, again and
// again: what `odyssey calibrate` and `odyssey bench plan` time and hold against the planner.
#pragma once
#include <functional>
#include <vector>

#include "apps/bench_attention_run.h"
#include "odyssey/comm/group.h"

namespace odyssey {

// calls[i]: one call of rows[i]. Every row has as many ranks as the group; B is 1. The calls own
// the memory of all rows: tensors once, workspaces each. Collective; each call is, too.
std::vector<std::function<void()>> attention_calls(Group& group,
                                                   const std::vector<BenchAttentionRow>& rows);

}  // namespace odyssey
