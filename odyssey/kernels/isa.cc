// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/isa.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "odyssey/base/error.h"

namespace odyssey {

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::kRef:
      return "ref";
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "?";
}

Isa detected_isa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    return Isa::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::kAvx2;
#endif
  return Isa::kPortable;
}

Isa isa_in_use() {
  static const Isa detected = detected_isa();
  const char* wish = std::getenv("ODYSSEY_MAX_ISA");
  if (wish == nullptr || *wish == '\0') return detected;
  for (Isa isa : {Isa::kRef, Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (name_of(isa) == wish) return std::min(isa, detected);
  }
  throw user_error("ODYSSEY_MAX_ISA", "ref, portable, avx2 or avx512", wish,
                   "Unset it to use the best.");
}

}  // namespace odyssey
