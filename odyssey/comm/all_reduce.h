// SPDX-License-Identifier: Apache-2.0
// all_reduce: every rank gets the sum (or maximum) over all ranks, the same bits on each.
#pragma once
#include "odyssey/comm/group.h"

namespace odyssey {

// For scalars and short arrays (losses, counts, norms): a binomial tree to rank 0 and back, no
// workspace. The order of the sum depends on the group size alone: rank r adds the subtrees of
// r+1, r+2, r+4, ... to its own value, in this order.
void all_reduce_sum(Group& group, std::span<float> values);
void all_reduce_sum(Group& group, std::span<double> values);
// NaN on any rank gives NaN.
void all_reduce_max(Group& group, std::span<float> values);

// For large arrays: reduce-scatter and all-gather in place, each element summed in rank order.
// workspace: at least all_reduce_workspace(group.size(), values.size()) elements.
void all_reduce_sum(Group& group, std::span<float> values, std::span<float> workspace);
int64_t all_reduce_workspace(int ranks, int64_t size);

}  // namespace odyssey
