// SPDX-License-Identifier: Apache-2.0
// Loops over the OpenMP threads of the calling rank. Thread ranks each have a team of their own.
#pragma once
#include <cstdint>

namespace odyssey {

// OpenMP threads that a parallel_for of the calling thread may use.
int thread_count();
// Sets that number for the calling thread (a rank) only.
void set_thread_count(int threads);
// Whether this is the thread that entered the surrounding parallel_for (true outside of one).
bool is_calling_thread();

// Calls body(i) for i in [0, count), the items handed out one by one. body must not throw.
// Results may not depend on which thread runs an item: same bits at any thread count.
template <class Body>
void parallel_for(int64_t count, const Body& body) {
  if (count <= 1 || thread_count() == 1) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t i = 0; i < count; ++i) body(i);
}

// Calls body(begin, end) on pieces of [0, count) of at least `grain` items, one piece a thread.
template <class Body>
void parallel_ranges(int64_t count, int64_t grain, const Body& body) {
  const int64_t most = (count + grain - 1) / grain;
  const int64_t pieces = most < thread_count() ? most : thread_count();
  if (pieces <= 1) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
  parallel_for(pieces, [&](int64_t p) { body(count * p / pieces, count * (p + 1) / pieces); });
}

}  // namespace odyssey
