// SPDX-License-Identifier: Apache-2.0
// The transfers that `odyssey calibrate` times: from rank to rank as a ring does, of heads as
// Ulysses does, of weights as sharded training does, and between hosts.
#pragma once
#include <memory>
#include <vector>

#include "apps/calibrate_attention.h"
#include "apps/probe_clock.h"
#include "odyssey/base/buffer.h"
#include "odyssey/comm/mesh.h"

namespace odyssey {

// What one call moves.
struct TransferCount {
  double messages = 0, bytes = 0;
};

struct TransferProbes {
  std::vector<Probe> probes;
  std::vector<TransferCount> counts;  // of each probe, as cpu_rates.h counts them
};

// Buffers of one rank. The probes hold on to it.
class TransferCalls {
 public:
  // Collective. `hosts`: of the group, each with equally many neighbouring ranks.
  TransferCalls(Group& group, const AttentionShape& shape, int hosts, bool quick);
  ~TransferCalls();

  const TransferProbes& shift() const { return shift_; }
  const TransferProbes& exchange() const { return exchange_; }  // empty where no heads are to share
  const TransferProbes& gather() const { return gather_; }
  const TransferProbes& network() const { return network_; }  // empty on one host

 private:
  void add_shift(int64_t bytes, int away, Clock clock, TransferProbes& to);
  void add_gather(int64_t bytes);
  void add_exchanges(const AttentionShape& shape, const std::vector<int64_t>& rows);

  class Heads;  // a head exchange of some rows
  Group& group_;
  std::unique_ptr<Mesh> mesh_;
  std::vector<std::unique_ptr<Heads>> heads_;
  Buffer<std::byte> out_, in_;
  TransferProbes shift_, exchange_, gather_, network_;
};

}  // namespace odyssey
