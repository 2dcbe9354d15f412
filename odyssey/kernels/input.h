// SPDX-License-Identifier: Apache-2.0
// Parameter types of the kernels: what a kernel reads, in storage type T (float or bf16).
#pragma once
#include <concepts>
#include <span>
#include <type_traits>

#include "odyssey/base/bf16.h"
#include "odyssey/base/view.h"

namespace odyssey {

// How numbers lie in memory. Arithmetic is in fp32 (sums in double where a header says so).
template <class T>
concept Storage = std::same_as<T, float> || std::same_as<T, bf16>;

// T is taken from another parameter or named by the caller, so that a View<float, 2> or a
// View<const float, 2> can be given alike.
template <class T, int Rank>
using Input = View<const std::type_identity_t<T>, Rank>;
template <class T>
using InputSpan = std::span<const std::type_identity_t<T>>;

// The elements of a row lie side by side; rows may stand apart.
template <class T, int Rank>
void check_rows_contiguous(const View<T, Rank>& view, const char* name) {
  ODYSSEY_CHECK(view.extent(Rank - 1) <= 1 || view.stride(Rank - 1) == 1,
                "the last axis of {} must be contiguous, its stride is {}", name,
                view.stride(Rank - 1));
}

template <class A, class B, int Rank>
void check_same_shape(const View<A, Rank>& a, const View<B, Rank>& b, const char* names) {
  for (int axis = 0; axis < Rank; ++axis) {
    ODYSSEY_CHECK(a.extent(axis) == b.extent(axis), "{}: extents {} and {} of axis {}", names,
                  a.extent(axis), b.extent(axis), axis);
  }
}

}  // namespace odyssey
