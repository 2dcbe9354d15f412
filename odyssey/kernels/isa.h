// SPDX-License-Identifier: Apache-2.0
// Which instruction set the kernels use: detected at run time, lowered on request.
#pragma once
#include <string_view>

namespace odyssey {

enum class Isa {
  kRef,       // plain loops, the oracle
  kPortable,  // vectors of 4 floats, any machine
  kAvx2,      // vectors of 8 floats, fused multiply-add
  kAvx512,    // vectors of 16 floats
  kAmx,       // the same, and matrix tiles of bf16; fp32 runs as under kAvx512
};
std::string_view name_of(Isa isa);

// The best that this machine can run.
Isa detected_isa();

// The one in use: detected_isa(), or less where the environment variable ODYSSEY_MAX_ISA
// (ref | portable | avx2 | avx512 | amx) asks for less. Throws UserError for any other value.
Isa isa_in_use();

}  // namespace odyssey
