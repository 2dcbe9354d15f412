// SPDX-License-Identifier: Apache-2.0
// The table of row kernels of one instruction set, for row_kernels_{portable,avx2,avx512}.cc.
#pragma once
#include "odyssey/kernels/exponential_rows_simd.h"
#include "odyssey/kernels/norm_rows_simd.h"
#include "odyssey/kernels/plain_rows_simd.h"

namespace odyssey {
namespace {

template <class T>
constexpr StoredRows<T> kStoredRows = {norm<T>,
                                       norm_backward<T>,
                                       turn<T>,
                                       gated<Silu, T>,
                                       gated<Gelu, T>,
                                       gated_backward<Silu, T>,
                                       gated_backward<Gelu, T>,
                                       softmax<T>,
                                       add<T>,
                                       scale<T>,
                                       add_scaled<T>,
                                       squares<T>,
                                       dot<T>};

constexpr RowKernels kTable = {
    kStoredRows<float>, kStoredRows<bf16>, narrow, widen, exponential_sum, angles, adamw};

}  // namespace
}  // namespace odyssey
