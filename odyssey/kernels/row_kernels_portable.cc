// SPDX-License-Identifier: Apache-2.0
// Row kernels with vectors of 4 floats.
#define ODYSSEY_LANES 4
#include "odyssey/kernels/row_table_simd.h"

namespace odyssey {

extern const RowKernels kRowKernelsPortable;
const RowKernels kRowKernelsPortable = kTable;

}  // namespace odyssey
