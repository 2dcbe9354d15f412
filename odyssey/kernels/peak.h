// SPDX-License-Identifier: Apache-2.0
// What this machine can do at most right now: the yardstick of a benchmark. Measured live, on
// random numbers, because AMX is a quarter faster on zeros, and in the process of the benchmark,
// because the clock of a shared machine drifts.
#pragma once
#include <cstdint>
#include <string_view>

#include "odyssey/kernels/isa.h"

namespace odyssey {

enum class PeakKind {
  kPortableFp32,  // vectors of 4 floats, multiply and add
  kAvx2Fp32,      // vectors of 8 floats, fused multiply-add
  kAvx512Fp32,    // vectors of 16 floats
  kAmxBf16,       // tiles of bf16 with fp32 sums
};
std::string_view name_of(PeakKind kind);

// Whether this machine can run it, whatever ODYSSEY_MAX_ISA says.
bool peak_available(PeakKind kind);

// The fp32 peak that kernels of this instruction set can reach.
PeakKind fp32_peak(Isa isa);
// kAmxBf16 where the machine has it, whatever `isa` is; else fp32_peak(isa).
PeakKind bf16_peak(Isa isa);

// kCpu counts only what the calling thread really ran, so other people's programs disturb it
// little; it tells nothing about the work of other threads.
enum class Clock { kWall, kCpu };
std::string_view name_of(Clock clock);
// Since some fixed moment.
double seconds_now(Clock clock);

// 10^12 floating-point operations per second of `threads` threads together (a multiply-add is 2),
// all operands in registers. Takes about 0.15 s. Throws RunError where it is not available.
double peak_tflops(PeakKind kind, int threads, Clock clock = Clock::kWall);

// 10^9 bytes per second, read and written bytes together, of a plain copy by `threads` threads that
// moves about `bytes` in all. The size matters: a small copy stays in a cache. Takes about 0.15 s
// or one copy, what is longer.
double copy_gbytes_per_second(int64_t bytes, int threads, Clock clock = Clock::kWall);

}  // namespace odyssey
