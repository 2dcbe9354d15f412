// SPDX-License-Identifier: Apache-2.0
// Row kernels with vectors of 16 floats.
#define ODYSSEY_LANES 16
#include "odyssey/kernels/row_table_simd.h"

namespace odyssey {

extern const RowKernels kRowKernelsAvx512;
const RowKernels kRowKernelsAvx512 = kTable;

}  // namespace odyssey
