// SPDX-License-Identifier: Apache-2.0
// The loops behind peak.h, one per instruction set. They work in registers only. Plain pointers:
// the files that define them hold intrinsics and nothing else.
#pragma once
#include <cstdint>

namespace odyssey {

// `random`: 4 KiB of random numbers (1024 fp32, or 2048 bf16 for AMX), aligned to 64 bytes.
// `sums`: 4 KiB that receive the results, so that no work can be left out.
// Does kPeakRounds rounds.
using PeakLoop = void (*)(const void* random, void* sums);

// A call of 5 to 100 us: long against reading a clock, short against the 0.1 s of a measurement.
inline constexpr int kPeakRounds = 2000;

// Floating-point operations in a round.
inline constexpr int64_t kPortablePeakFlops = 12 * 4 * 2;
inline constexpr int64_t kAvx2PeakFlops = 12 * 8 * 2;
inline constexpr int64_t kAvx512PeakFlops = 24 * 16 * 2;
inline constexpr int64_t kAmxPeakFlops = 4 * 16 * 16 * 32 * 2;

void portable_peak_loop(const void* random, void* sums);
#if defined(__x86_64__)
void avx2_peak_loop(const void* random, void* sums);
void avx512_peak_loop(const void* random, void* sums);
// The process must have the permission of Linux to use tiles. Leaves the tiles released.
void amx_peak_loop(const void* random, void* sums);
#endif

}  // namespace odyssey
