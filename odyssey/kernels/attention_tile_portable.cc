// SPDX-License-Identifier: Apache-2.0
// Block attention tiles with vectors of 4 floats.
#define ODYSSEY_LANES 4
#include "odyssey/kernels/attention_tile_simd.h"

namespace odyssey {

extern const AttentionTileKernels kAttentionTilesPortable;
const AttentionTileKernels kAttentionTilesPortable = kKernels;

}  // namespace odyssey
