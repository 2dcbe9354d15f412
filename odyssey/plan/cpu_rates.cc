// SPDX-License-Identifier: Apache-2.0
#include "odyssey/plan/cpu_rates.h"

#include <array>

#include <fmt/core.h>

namespace odyssey {
namespace {

constexpr const char* kFirstField = "rates_dtype";  // a file has all fields or none
constexpr double kMostSeconds = 10;

}  // namespace

CpuRates CpuRates::at_peak(double tflops) const {
  CpuRates rates = *this;
  const double factor = live_peak_tflops / tflops;
  for (BlockRates* block : {&rates.forward, &rates.backward}) {
    for (double* rate : {&block->pair, &block->query_row, &block->key_row, &block->call}) {
      *rate *= factor;
    }
  }
  rates.linear_flop *= factor;
  rates.linear_weight *= factor;
  rates.live_peak_tflops = tflops;
  return rates;
}

std::span<const CpuRateField> cpu_rate_fields() {
  using R = CpuRates;
  static constexpr std::array<CpuRateField, 25> kFields = {{
      {"forward_pair_seconds", "s a pair and head", [](R& r) -> double& { return r.forward.pair; }},
      {"forward_query_row_seconds", "s a query and head",
       [](R& r) -> double& { return r.forward.query_row; }},
      {"forward_key_row_seconds", "s a key and kv head",
       [](R& r) -> double& { return r.forward.key_row; }},
      {"forward_call_seconds", "s a call", [](R& r) -> double& { return r.forward.call; }},
      {"backward_pair_seconds", "s a pair and head",
       [](R& r) -> double& { return r.backward.pair; }},
      {"backward_query_row_seconds", "s a query and head",
       [](R& r) -> double& { return r.backward.query_row; }},
      {"backward_key_row_seconds", "s a key and kv head",
       [](R& r) -> double& { return r.backward.key_row; }},
      {"backward_call_seconds", "s a call", [](R& r) -> double& { return r.backward.call; }},
      {"linear_flop_seconds", "s an operation", [](R& r) -> double& { return r.linear_flop; }},
      {"linear_weight_seconds", "s a weight and product",
       [](R& r) -> double& { return r.linear_weight; }},
      {"pass_byte_seconds", "s a byte read or written",
       [](R& r) -> double& { return r.pass_byte; }},
      {"norm_element_seconds", "s an element and step",
       [](R& r) -> double& { return r.norm_element; }},
      {"rope_element_seconds", "s an element and step",
       [](R& r) -> double& { return r.rope_element; }},
      {"activation_element_seconds", "s an element and step",
       [](R& r) -> double& { return r.activation_element; }},
      {"logit_element_seconds", "s a logit", [](R& r) -> double& { return r.logit_element; }},
      {"parameter_seconds", "s a parameter and step", [](R& r) -> double& { return r.parameter; }},
      {"shift_message_seconds", "s a message", [](R& r) -> double& { return r.shift.message; }},
      {"shift_byte_seconds", "s a byte", [](R& r) -> double& { return r.shift.byte; }},
      {"exchange_message_seconds", "s a message",
       [](R& r) -> double& { return r.exchange.message; }},
      {"exchange_byte_seconds", "s a byte", [](R& r) -> double& { return r.exchange.byte; }},
      {"gather_message_seconds", "s a message", [](R& r) -> double& { return r.gather.message; }},
      {"gather_byte_seconds", "s a byte", [](R& r) -> double& { return r.gather.byte; }},
      {"network_message_seconds", "s a message", [](R& r) -> double& { return r.network.message; }},
      {"network_byte_seconds", "s a byte", [](R& r) -> double& { return r.network.byte; }},
      {"live_peak_tflops", "TFLOP/s of a core at that time",
       [](R& r) -> double& { return r.live_peak_tflops; }},
  }};
  return kFields;
}

std::optional<CpuRates> read_cpu_rates(Fields& fields) {
  bool has_any =
      fields.has(kFirstField) || fields.has("rates_head_size") || fields.has("rates_query_tile");
  for (const CpuRateField& field : cpu_rate_fields()) {
    has_any = has_any || fields.has(std::string(field.name));
  }
  if (!has_any) return std::nullopt;
  CpuRates rates;
  rates.data_type = fields.choice(kFirstField, {"bfloat16", "float32"}) == "float32"
                        ? DataType::kFloat32
                        : DataType::kBfloat16;
  rates.head_size = fields.whole("rates_head_size", 1, 4096);
  rates.query_tile = fields.whole("rates_query_tile", 1, 4096);
  for (const CpuRateField& field : cpu_rate_fields()) {
    const bool is_peak = field.name == "live_peak_tflops";
    field.of(rates) =
        fields.number(std::string(field.name), is_peak ? 1e-6 : 0, is_peak ? 1e6 : kMostSeconds);
  }
  return rates;
}

std::string cpu_rates_text(const CpuRates& rates, std::string_view source) {
  std::string text = fmt::format("rates_dtype: {}\nrates_head_size: {}\nrates_query_tile: {}\n",
                                 rates.data_type == DataType::kFloat32 ? "float32" : "bfloat16",
                                 rates.head_size, rates.query_tile);
  CpuRates copy = rates;
  for (const CpuRateField& field : cpu_rate_fields()) {
    text += fmt::format("{:<40}  # {}; {}\n", fmt::format("{}: {:.4g}", field.name, field.of(copy)),
                        field.unit, source);
  }
  return text;
}

}  // namespace odyssey
