// SPDX-License-Identifier: Apache-2.0
// How the axes of a layout lie on the wires of a machine, and how fast that makes each kind of
// exchange. Peak rates of links; calibration.h knows what share is reached.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "odyssey/config/run_config.h"
#include "odyssey/plan/hardware.h"

namespace odyssey {

// The part of one torus axis that one axis of ranks takes.
struct TorusPart {
  int axis = 0;
  int64_t size = 1;
  bool whole = false;  // all of the axis
};

// parts[i]: what axis i of ranks takes. Axes of ranks take whole torus axes whose product is their
// size, the innermost first and as many torus axes as possible; what does not come out so is cut.
struct TorusMapping {
  std::vector<std::vector<TorusPart>> parts;
  bool aligned = true;  // no torus axis is shared by two axes of ranks
};
// `sizes` outermost first; their product is that of the torus.
TorusMapping map_to_torus(std::span<const int64_t> torus, std::span<const int64_t> sizes);

// Bytes per second of one rank at full links.
struct Routes {
  double weights = 0;    // all-gather of weights: bytes received from all ranks that share them
  double replicas = 0;   // sum of gradients over the data axis
  double gather = 0;     // all-gather over the ring
  double exchange = 0;   // all-to-all over the Ulysses axis: bytes sent to others
  double neighbour = 0;  // to the next rank of the ring
  bool aligned = true;   // TPU: see TorusMapping
  std::string finding;   // one sentence for the user where a layout lies badly; else empty
};
Routes route(const Hardware& hardware, const ParallelConfig& parallel);

}  // namespace odyssey
