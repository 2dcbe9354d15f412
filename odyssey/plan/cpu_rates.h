// SPDX-License-Identifier: Apache-2.0
// CpuRates: what one core of a machine of CPUs was measured to do while its other cores worked too.
// `odyssey calibrate` measures them and writes them into the machine's file, beside the figures of
// hardware.h; a machine without them is priced by its data sheet. cpu_cost.h uses them.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "odyssey/config/run_config.h"
#include "odyssey/plan/fields.h"

namespace odyssey {

// One call of block attention: H heads with q queries each, K key/value heads with k keys each, and
// `pairs` (query, key) pairs of a head in tiles that are not hidden (visible_tile_pairs).
// Seconds of a core = H (pairs * pair + q * query_row) + K k key_row + call.
struct BlockRates {
  double pair = 0, query_row = 0, key_row = 0, call = 0;
  double seconds(double heads, double kv_heads, double pairs, double queries, double keys) const {
    return heads * (pairs * pair + queries * query_row) + kv_heads * keys * key_row + call;
  }
};

// A transfer: seconds = messages * message + bytes * byte.
struct TransferRates {
  double message = 0, byte = 0;
};

// Inside a host a core copies what is sent, so the seconds are those of a core; each rank is
// charged for what it receives.
struct CpuRates {
  DataType data_type = DataType::kBfloat16;  // of the kernels that were measured
  int64_t head_size = 128;                   // other sizes are scaled: all terms but `call`
  int64_t query_tile = 32;                   // of the attention kernels
  BlockRates forward, backward;
  double linear_flop = 0;    // seconds of one operation in products with weights
  double linear_weight = 0;  // and of each weight of one product, however few the tokens
  double pass_byte = 0;      // of a byte that is read or written in a pass over tensors
  // Of an element, in a whole step: twice forward and once backward of a norm, of RoPE, of the
  // gated activation; the cross entropy of a logit; AdamW of a parameter and its sums of squares.
  double norm_element = 0, rope_element = 0, activation_element = 0;
  double logit_element = 0, parameter = 0;
  TransferRates shift;     // from one ring rank to another
  TransferRates exchange;  // of heads, with packing and unpacking; bytes with the own part
  TransferRates gather;    // from all ranks of a group: of weights
  TransferRates network;   // between hosts: a message is under way so long, and no core is busy
  double live_peak_tflops = 0;  // of a core, to which attention and products are held
  int64_t cores_per_host = 1;

  // What they are at another live peak: attention and products go with it, passes and transfers
  // stay.
  CpuRates at_peak(double tflops) const;
};

// A number by its name in files, with its unit.
struct CpuRateField {
  std::string_view name, unit;
  double& (*of)(CpuRates& rates);
};
std::span<const CpuRateField> cpu_rate_fields();

// The rates of a machine's file; nothing where it has none of them. Throws UserError where it has
// some and lacks others.
std::optional<CpuRates> read_cpu_rates(Fields& fields);

// Their lines in such a file; `source` ends each: "measured on 2026-11-30 by odyssey calibrate".
std::string cpu_rates_text(const CpuRates& rates, std::string_view source);

}  // namespace odyssey
