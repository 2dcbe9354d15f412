// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/peak.h"

#include <cmath>

#include <gtest/gtest.h>

#include "odyssey/base/error.h"

namespace odyssey {
namespace {

const PeakKind kKinds[] = {PeakKind::kPortableFp32, PeakKind::kAvx2Fp32, PeakKind::kAvx512Fp32,
                           PeakKind::kAmxBf16};

TEST(Peak, IsASpeedThatAProcessorCanHave) {
  for (PeakKind kind : kKinds) {
    if (!peak_available(kind)) {
      EXPECT_THROW(peak_tflops(kind, 1), RunError);
      continue;
    }
    for (int threads : {1, 2, 3}) {
      const double tflops = peak_tflops(kind, threads);
      // Wide bounds: a loaded machine on one side, work that was optimised away on the other.
      // How fast is the machine's affair, and that of who else runs on it.
      EXPECT_GT(tflops, 0) << name_of(kind);
      EXPECT_TRUE(std::isfinite(tflops)) << name_of(kind);
    }
  }
}

TEST(Peak, KindFollowsTheInstructionSet) {
  EXPECT_EQ(fp32_peak(Isa::kRef), PeakKind::kPortableFp32);
  EXPECT_EQ(fp32_peak(Isa::kPortable), PeakKind::kPortableFp32);
  EXPECT_EQ(fp32_peak(Isa::kAvx2), PeakKind::kAvx2Fp32);
  EXPECT_EQ(fp32_peak(Isa::kAvx512), PeakKind::kAvx512Fp32);
  const bool has_tiles = peak_available(PeakKind::kAmxBf16);
  EXPECT_EQ(bf16_peak(Isa::kAvx2), has_tiles ? PeakKind::kAmxBf16 : PeakKind::kAvx2Fp32);
}

TEST(Peak, CopiesOfAnySize) {
  for (int64_t bytes : {0, 1, 100000, 40000000}) {
    for (int threads : {1, 2}) {
      const double speed = copy_gbytes_per_second(bytes, threads);
      EXPECT_GT(speed, 0);
      EXPECT_TRUE(std::isfinite(speed));
    }
  }
}

}  // namespace
}  // namespace odyssey
