// SPDX-License-Identifier: Apache-2.0
#include "odyssey/plan/rank_script.h"

#include <algorithm>

#include "odyssey/plan/tile_pairs.h"
#include "odyssey/schedule/block_buffers.h"

namespace odyssey {
namespace {

double real(int64_t number) {
  return static_cast<double>(number);
}

class Writer {
 public:
  Writer(const CpuRates& rates, const AttentionLayout& layout, const HostMap& hosts, int r, int u)
      : rates_(rates), layout_(layout), hosts_(hosts), r_(r), u_(u) {}

  void forward() {
    const double block = kv_row_elements() * ring_rows() * real(layout_.element_bytes);
    if (layout_.ulysses_size() == 1) pass(2 * block);  // k and v are copied into the own block
    const std::vector<Step> steps = forward_schedule(layout_, r_, u_);
    for (const Step& step : steps) run(step, rates_.forward);
    // Between two kernel calls the accumulator goes to memory and comes back, in fp32. The own
    // block is one call, hops go together; behind a gather all of it is one call.
    const auto hops = std::ranges::count(steps, StepKind::kAttend, &Step::kind) - 1;
    if (hops > 0 && !layout_.outer_gather) {
      const int64_t calls = (hops + layout_.hops_at_once - 1) / layout_.hops_at_once;
      pass(real(calls) * 8 * ring_rows() * query_row_elements());
    }
  }

  void backward() {
    const double query = ring_rows() * query_row_elements();
    const double prepare = query * 2 * real(layout_.element_bytes);  // out and dout give delta
    const bool exchanges = layout_.ulysses_size() > 1;
    if (!exchanges) pass(prepare);
    for (const Step& step : backward_schedule(layout_, r_, u_)) {
      if (step.kind == StepKind::kExchangeOut) convert_gradients();
      run(step, rates_.backward);
      if (step.kind == StepKind::kExchangeIn) pass(prepare);
    }
    if (!exchanges) convert_gradients();
  }

  RankScript take() { return std::move(script_); }

 private:
  double ring_rows() const { return real(layout_.placement.ring_block_rows(r_) * layout_.batch); }
  double query_row_elements() const {
    return real(layout_.heads.query_count(u_) * layout_.head_size);
  }
  double kv_row_elements() const {  // of K and V together
    return 2 * real(layout_.heads.kv_count(u_) * layout_.head_size);
  }

  void work(double seconds) { script_.actions.push_back({RankAction::Kind::kWork, seconds, -1}); }
  // A pass that reads and writes so many bytes.
  void pass(double bytes) {
    script_.copies += bytes * rates_.pass_byte;
    work(bytes * rates_.pass_byte);
  }
  void convert_gradients() {
    const double elements = ring_rows() * (query_row_elements() + kv_row_elements());
    pass(elements * (4 + real(layout_.element_bytes)));
  }
  void send(int peer, double bytes) {
    const bool is_near =
        peer / hosts_.ranks_per_host == hosts_.place(r_, u_) / hosts_.ranks_per_host;
    const double away = is_near ? 0 : rates_.network.message + bytes * rates_.network.byte;
    script_.actions.push_back({RankAction::Kind::kSend, away, peer});
  }
  void await(int peer) { script_.actions.push_back({RankAction::Kind::kReceive, 0, peer}); }
  // The receiver pays for the copy, which one of the two makes.
  void receive(int peer, double bytes) {
    await(peer);
    const double seconds = rates_.shift.message + bytes * rates_.shift.byte;
    script_.transfers += seconds;
    work(seconds);
  }

  void run(const Step& step, const BlockRates& rates) {
    const double row_bytes = kv_row_elements() * real(layout_.batch * layout_.element_bytes);
    const double gradient_row_bytes = kv_row_elements() * real(layout_.batch) * 4;
    const double sent = real(count_rows(step.rows));
    const double arriving = real(count_rows(step.arriving_rows));
    switch (step.kind) {
      case StepKind::kAttend:
        attend(step, rates);
        break;
      case StepKind::kShift:
      case StepKind::kGather:
        // Rows that are no neighbours are packed first.
        if (step.to >= 0 && !is_one_piece(step.rows)) {
          pass(2 * sent * row_bytes);
        }
        if (step.to >= 0) send(hosts_.place(step.to, u_), sent * row_bytes);
        if (step.kind == StepKind::kGather && step.from >= 0) {
          receive(hosts_.place(step.from, u_), arriving * row_bytes);
        }
        break;
      case StepKind::kAwaitShift:
        if (step.from >= 0) receive(hosts_.place(step.from, u_), arriving * row_bytes);
        break;
      case StepKind::kShiftGradient:
        if (step.to >= 0) send(hosts_.place(step.to, u_), sent * gradient_row_bytes);
        break;
      case StepKind::kAwaitGradient:
        if (step.from < 0) break;
        receive(hosts_.place(step.from, u_), arriving * gradient_row_bytes);
        pass(3 * arriving * gradient_row_bytes);  // added to the own ones
        break;
      case StepKind::kExchangeIn:
      case StepKind::kExchangeOut:
        exchange(step);
        break;
    }
  }

  void attend(const Step& step, const BlockRates& rates) {
    const std::vector<Run> queries = layout_.placement.ring_block(r_);
    const std::vector<Run> keys = runs_of(layout_.placement.ring_block(step.block), step.rows);
    const int64_t pairs =
        visible_tile_pairs(queries, keys, layout_.kind, layout_.window, rates_.query_tile);
    const double scale = real(layout_.head_size) / real(rates_.head_size);
    BlockRates scaled = rates;
    for (double* rate : {&scaled.pair, &scaled.query_row, &scaled.key_row}) *rate *= scale;
    const double seconds =
        real(layout_.batch) * scaled.seconds(real(layout_.heads.query_count(u_)),
                                             real(layout_.heads.kv_count(u_)), real(pairs),
                                             real(count_rows(queries)), real(count_rows(keys)));
    script_.attention += seconds;
    work(seconds);
  }

  // Packed or unpacked, on one side, and moved by the transport: half of the work on each side of
  // the wait. The own part costs as much as the others.
  void exchange(const Step& step) {
    const int others = layout_.ulysses_size() - 1;
    const double sent = real(step.bytes_sent), received = real(step.bytes_received);
    const double all = (sent + received) / 2 * (others + 1) / others;
    const double half = (all * rates_.exchange.byte + others * rates_.exchange.message) / 2;
    const auto peer = [&](int away) {
      return hosts_.place(r_, (u_ + away) % layout_.ulysses_size());
    };
    script_.exchanges += 2 * half;
    work(half);
    for (int away = 1; away <= others; ++away) send(peer(away), sent / others);
    for (int away = 1; away <= others; ++away) await(peer(others + 1 - away));
    work(half);
  }

  const CpuRates& rates_;
  const AttentionLayout& layout_;
  const HostMap& hosts_;
  const int r_, u_;
  RankScript script_;
};

}  // namespace

int HostMap::place(int r, int u) const {
  const int inner_ring = ring / ring_nodes, inner_ulysses = ulysses / ulysses_nodes;
  const int node = r / inner_ring * ulysses_nodes + u / inner_ulysses;
  return (node * inner_ring + r % inner_ring) * inner_ulysses + u % inner_ulysses;
}

RankScript attention_script(const CpuRates& rates, const AttentionLayout& layout,
                            const HostMap& hosts, int r, int u, int forwards, bool backward) {
  Writer writer(rates, layout, hosts, r, u);
  for (int i = 0; i < forwards; ++i) writer.forward();
  if (backward) writer.backward();
  return writer.take();
}

}  // namespace odyssey
