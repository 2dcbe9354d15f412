// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/peak.h"

#include <algorithm>
#include <cstring>
#include <ctime>

#include "odyssey/base/bf16.h"
#include "odyssey/base/buffer.h"
#include "odyssey/base/error.h"
#include "odyssey/base/random.h"
#include "odyssey/kernels/isa.h"
#include "odyssey/kernels/peak_loop.h"

namespace odyssey {
namespace {

// A processor needs some milliseconds to settle on the clock of wide vectors.
constexpr double kWarmUpSeconds = 0.03;
// Many time slices of the system, so that foreign load weighs as much as on a kernel.
constexpr double kSeconds = 0.12;
constexpr int64_t kBlockBytes = 4096;

struct LoopOf {
  PeakLoop loop;
  int64_t flops;  // of one call
};

LoopOf loop_of([[maybe_unused]] PeakKind kind) {
#if defined(__x86_64__)
  switch (kind) {
    case PeakKind::kAmxBf16:
      return {amx_peak_loop, kAmxPeakFlops * kPeakRounds};
    case PeakKind::kAvx512Fp32:
      return {avx512_peak_loop, kAvx512PeakFlops * kPeakRounds};
    case PeakKind::kAvx2Fp32:
      return {avx2_peak_loop, kAvx2PeakFlops * kPeakRounds};
    case PeakKind::kPortableFp32:
      break;
  }
#endif
  return {portable_peak_loop, kPortablePeakFlops * kPeakRounds};
}

// Two blocks a thread: what a loop reads, random numbers, and what it writes.
Buffer<std::byte> random_blocks(PeakKind kind, int threads) {
  Buffer<std::byte> blocks(2 * kBlockBytes * threads);
  for (int t = 0; t < threads; ++t) {
    std::byte* block = blocks.data() + 2 * kBlockBytes * t;
    const Random random(1, static_cast<uint64_t>(t));
    if (kind == PeakKind::kAmxBf16) {
      bf16* values = reinterpret_cast<bf16*>(block);
      for (int i = 0; i < 2048; ++i) values[i] = bf16(static_cast<float>(random.normal(i)));
    } else {
      float* values = reinterpret_cast<float*>(block);
      for (int i = 0; i < 1024; ++i) values[i] = static_cast<float>(random.normal(i));
    }
  }
  return blocks;
}

// Calls step(t) on all threads at once until `seconds` are over; the sum over threads of calls per
// second. At least one call each.
template <class Step>
double calls_per_second(int threads, Clock clock, double seconds, const Step& step) {
  double rate = 0;
#pragma omp parallel for num_threads(threads) schedule(static, 1) reduction(+ : rate)
  for (int t = 0; t < threads; ++t) {
    const double start = seconds_now(clock);
    double elapsed = 0, calls = 0;
    do {
      step(t);
      ++calls;
      elapsed = seconds_now(clock) - start;
    } while (elapsed < seconds);
    rate += calls / elapsed;
  }
  return rate;
}

}  // namespace

std::string_view name_of(PeakKind kind) {
  switch (kind) {
    case PeakKind::kPortableFp32:
      return "portable fp32";
    case PeakKind::kAvx2Fp32:
      return "avx2 fp32";
    case PeakKind::kAvx512Fp32:
      return "avx512 fp32";
    case PeakKind::kAmxBf16:
      return "amx bf16";
  }
  return "?";
}

bool peak_available(PeakKind kind) {
#if defined(__x86_64__)
  switch (kind) {
    case PeakKind::kAmxBf16:
      return detected_isa() == Isa::kAmx;
    case PeakKind::kAvx512Fp32:
      return __builtin_cpu_supports("avx512f") != 0;
    case PeakKind::kAvx2Fp32:
      return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    case PeakKind::kPortableFp32:
      break;
  }
#endif
  return kind == PeakKind::kPortableFp32;
}

PeakKind fp32_peak(Isa isa) {
  if (isa >= Isa::kAvx512) return PeakKind::kAvx512Fp32;
  return isa == Isa::kAvx2 ? PeakKind::kAvx2Fp32 : PeakKind::kPortableFp32;
}

PeakKind bf16_peak(Isa isa) {
  return peak_available(PeakKind::kAmxBf16) ? PeakKind::kAmxBf16 : fp32_peak(isa);
}

std::string_view name_of(Clock clock) {
  return clock == Clock::kWall ? "wall" : "cpu";
}

double seconds_now(Clock clock) {
  timespec time{};
  clock_gettime(clock == Clock::kWall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double peak_tflops(PeakKind kind, int threads, Clock clock) {
  ODYSSEY_CHECK(threads >= 1, "{} threads", threads);
  if (!peak_available(kind)) {
    throw RunError(fmt::format("this machine cannot run {} instructions", name_of(kind)));
  }
  const LoopOf loop = loop_of(kind);
  const Buffer<std::byte> blocks = random_blocks(kind, threads);
  std::byte* first = const_cast<std::byte*>(blocks.data());
  const auto step = [&](int t) {
    std::byte* block = first + 2 * kBlockBytes * t;
    loop.loop(block, block + kBlockBytes);
  };
  calls_per_second(threads, clock, kWarmUpSeconds, step);
  return calls_per_second(threads, clock, kSeconds, step) * static_cast<double>(loop.flops) * 1e-12;
}

double copy_gbytes_per_second(int64_t bytes, int threads, Clock clock) {
  ODYSSEY_CHECK(threads >= 1 && bytes >= 0, "{} bytes, {} threads", bytes, threads);
  // Half of the moved bytes are read, half are written; at least a page a thread.
  const int64_t piece = std::max<int64_t>(bytes / 2 / threads, 4096);
  Buffer<std::byte> from(piece * threads), to(piece * threads);
  const auto step = [&](int t) {
    std::memcpy(to.data() + piece * t, from.data() + piece * t, static_cast<size_t>(piece));
    // So that the copy is not taken for useless.
    asm volatile("" ::"r"(to.data()) : "memory");
  };
  // Pages of zeros that were never written may be one and the same page: write them first.
  std::memset(from.data(), 0x5a, static_cast<size_t>(from.size()));
  calls_per_second(threads, clock, kWarmUpSeconds, step);
  return calls_per_second(threads, clock, kSeconds, step) * 2 * static_cast<double>(piece) * 1e-9;
}

}  // namespace odyssey
