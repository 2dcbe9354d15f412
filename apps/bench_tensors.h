// SPDX-License-Identifier: Apache-2.0
// The tensors of a benchmark problem, filled with random numbers, and one call of its kernel.
#pragma once
#include <functional>

#include "apps/bench_problem.h"
#include "odyssey/base/buffer.h"

namespace odyssey {

// Normal numbers of deviation 1. `start` shifts the pattern, so that tensors differ. T: float or
// bf16.
template <class T>
Buffer<T> random_buffer(int64_t size, int64_t start);

// The call owns the tensors. It may be repeated; what it measures does not drift with the number of
// calls. What belongs to a call:
//   attention forward: reset, attend_and_finish; out in the data type
//   attention backward: delta, attend_backward into fresh dq, dk, dv; from the out and lse of a
//   real
//                       forward, which ran before; gradients in fp32
//   matmul: as the headers say; backward_weight adds to an fp32 dw
std::function<void()> make_bench_call(const BenchProblem& problem);

}  // namespace odyssey
