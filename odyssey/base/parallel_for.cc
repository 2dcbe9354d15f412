// SPDX-License-Identifier: Apache-2.0
#include "odyssey/base/parallel_for.h"

#include <omp.h>

namespace odyssey {

int thread_count() { return omp_get_max_threads(); }
void set_thread_count(int threads) { omp_set_num_threads(threads); }

}  // namespace odyssey
