// SPDX-License-Identifier: Apache-2.0
// Row kernels with vectors of 16 floats, on processors with instructions for bf16.
#define ODYSSEY_LANES 16
#include "odyssey/kernels/row_table_simd.h"

namespace odyssey {

extern const RowKernels kRowKernelsAvx512Bf16;
const RowKernels kRowKernelsAvx512Bf16 = kTable;

}  // namespace odyssey
