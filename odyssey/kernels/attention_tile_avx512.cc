// SPDX-License-Identifier: Apache-2.0
// Block attention tiles with vectors of 16 floats.
#define ODYSSEY_LANES 16
#include "odyssey/kernels/attention_tile_simd.h"

namespace odyssey {

extern const AttentionTileKernels kAttentionTilesAvx512;
const AttentionTileKernels kAttentionTilesAvx512 = kKernels;

}  // namespace odyssey
