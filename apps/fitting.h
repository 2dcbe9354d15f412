// SPDX-License-Identifier: Apache-2.0
// What to change in a training run that is too large for this machine's memory.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace odyssey {

// Key=value words which, added to the given ones (and replacing those of the same key), make a run
// whose ranks together need at most `bytes`. Prefers to keep the model, then the ranks, then the
// length; empty when nothing helps. ring and ulysses: the sizes of the run as it is.
std::string keys_that_fit(const std::string& yml, std::span<const std::string> key_values, int ring,
                          int ulysses, int64_t bytes);

}  // namespace odyssey
