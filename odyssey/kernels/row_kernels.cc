// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/row_kernels.h"

#include "odyssey/kernels/isa.h"

namespace odyssey {

const RowKernels& row_kernels() {
  switch (isa_in_use()) {
    case Isa::kRef:
      return kRowKernelsReference;
    case Isa::kPortable:
      break;
#if defined(__x86_64__)
    case Isa::kAvx2:
      return kRowKernelsAvx2;
    case Isa::kAvx512:
      return kRowKernelsAvx512;
    case Isa::kAmx:
      return kRowKernelsAvx512Bf16;
#else
    default:
      break;
#endif
  }
  return kRowKernelsPortable;
}

}  // namespace odyssey
