// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/isa.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "odyssey/base/error.h"

namespace odyssey {
namespace {

#if defined(__x86_64__)
// Whether the processor has bf16 tiles and Linux lets this process use them. The kernel saves tile
// registers (8 KiB a thread) only for processes that asked, so ask once.
bool can_use_tiles() {
#if defined(__linux__)
  static const bool granted = [] {
    if (!__builtin_cpu_supports("amx-tile") || !__builtin_cpu_supports("amx-bf16") ||
        !__builtin_cpu_supports("avx512bf16")) {
      return false;
    }
    constexpr int64_t kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
    constexpr int64_t kTileData = 18;               // its XSAVE component
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return granted;
#else
  return false;
#endif
}
#endif

}  // namespace

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
    case Isa::kAmx:
      return "amx";
  }
  return "?";
}

Isa detected_isa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    return can_use_tiles() ? Isa::kAmx : Isa::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::kAvx2;
#endif
  return Isa::kPortable;
}

Isa isa_in_use() {
  static const Isa detected = detected_isa();
  const char* wish = std::getenv("ODYSSEY_MAX_ISA");
  if (wish == nullptr || *wish == '\0') return detected;
  for (Isa isa : {Isa::kRef, Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (name_of(isa) == wish) return std::min(isa, detected);
  }
  throw user_error("ODYSSEY_MAX_ISA", "ref, portable, avx2, avx512 or amx", wish,
                   "Unset it to use the best.");
}

}  // namespace odyssey
