// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/fixed_order.h"

#include "odyssey/kernels/scratch.h"

namespace odyssey {

float* fixed_order_scratch(int64_t size) {
  thread_local Scratch<float> scratch;
  return scratch.at_least(size);
}

}  // namespace odyssey
