// SPDX-License-Identifier: Apache-2.0
// Block attention tiles with vectors of 8 floats.
#define ODYSSEY_LANES 8
#include "odyssey/kernels/attention_tile_simd.h"

namespace odyssey {

extern const AttentionTileKernels kAttentionTilesAvx2;
const AttentionTileKernels kAttentionTilesAvx2 = kKernels;

}  // namespace odyssey
