// SPDX-License-Identifier: Apache-2.0
// Row kernels with vectors of 8 floats.
#define ODYSSEY_LANES 8
#include "odyssey/kernels/row_table_simd.h"

namespace odyssey {

extern const RowKernels kRowKernelsAvx2;
const RowKernels kRowKernelsAvx2 = kTable;

}  // namespace odyssey
