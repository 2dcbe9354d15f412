// SPDX-License-Identifier: Apache-2.0
#include "odyssey/base/parallel_for.h"

#include <omp.h>

namespace odyssey {

int thread_count() {
  return omp_get_max_threads();
}
bool is_calling_thread() {
  return omp_get_thread_num() == 0;
}
void set_thread_count(int threads) {
  omp_set_num_threads(threads);
}

}  // namespace odyssey
