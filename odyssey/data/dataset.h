// SPDX-License-Identifier: Apache-2.0
// Makes the data set that a configuration asks for.
#pragma once
#include <cstdint>
#include <memory>

#include "odyssey/config/run_config.h"
#include "odyssey/data/batch.h"

namespace odyssey {

// The stream of rows depends only on (config, vocabulary) and the files. Throws UserError when
// there is no text to be had, or when the vocabulary is too small for it.
std::unique_ptr<Dataset> make_dataset(const DataConfig& config, int64_t vocabulary);

}  // namespace odyssey
