// SPDX-License-Identifier: Apache-2.0
// Ranks agree, or fail together: a difference or an error on one rank becomes the same UserError on
// all, so that no rank goes on alone and waits for ever.
#pragma once
#include <string>

#include "odyssey/comm/group.h"

namespace odyssey {

// Compares a hash over all ranks. When they differ, every rank throws the same UserError, which
// names `what`, the lowest rank that differs from rank 0, and both hashes. Collective.
void check_agreement(Group& group, uint64_t hash, const std::string& what);

// Every rank brings its error text, or "" when all is well. When there is one, every rank throws
// UserError with the text of the lowest failing rank. Collective.
void fail_together(Group& group, const std::string& error_or_empty);

}  // namespace odyssey
