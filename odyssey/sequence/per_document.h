// SPDX-License-Identifier: Apache-2.0
// The per_document placement: how the documents of one row are shared among R ring ranks, so that
// each has the same number of tokens and, under a causal mask, nearly the same work.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "odyssey/sequence/block_mask.h"

namespace odyssey {

// documents: lengths, all at least 1, in the order of the row; their sum is S. Returns the rows of
// each ring rank as runs of global positions, ascending. Rank r gets part r of R of the S tokens as
// far as their number goes, whatever the documents are.
//
// A long document is cut into 2R chunks; rank r gets chunks r and 2R-1-r. A short one stays whole:
// one rank attends to it alone, and tiles of the kernels do not break into scraps. Short is what
// would give chunks of less than 64 tokens and is no more than a quarter of a rank's tokens. Short
// documents go, the longest first, to the rank that has the least work and still has room; at the
// end of the row some are cut to fill the last places.
std::vector<std::vector<Run>> per_document_blocks(std::span<const int64_t> documents,
                                                  int ring_size);

}  // namespace odyssey
