// SPDX-License-Identifier: Apache-2.0
// reduce_scatter_sum: every rank gets the sum over all ranks of its own part.
#pragma once
#include "odyssey/comm/group.h"

namespace odyssey {

// all holds the parts for ranks 0, 1, ... in this order without gaps; counts, equal on all ranks,
// holds their sizes in elements. mine gets the sum of this rank's part and may be its place in all.
// Every element is ((x0 + x1) + x2) + ... in rank order, in fp32: the same bits however the
// elements are cut into parts. workspace: at least reduce_scatter_workspace(counts) elements.
void reduce_scatter_sum(Group& group, std::span<const float> all, std::span<float> mine,
                        std::span<const int64_t> counts, std::span<float> workspace);

// Elements; small and independent of the size of large parts. 0 for one rank.
int64_t reduce_scatter_workspace(std::span<const int64_t> counts);

}  // namespace odyssey
