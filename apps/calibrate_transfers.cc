// SPDX-License-Identifier: Apache-2.0
#include "apps/calibrate_transfers.h"

#include <algorithm>

#include "odyssey/base/bf16.h"
#include "odyssey/comm/all_gather.h"
#include "odyssey/context/head_exchange.h"

namespace odyssey {
namespace {

constexpr int64_t kKib = 1024;

// The largest Ulysses axis that these ranks can have.
int most_ulysses(int ranks, int64_t query_heads) {
  int most = 1;
  for (int u = 2; u <= ranks && u <= query_heads; ++u) most = ranks % u == 0 ? u : most;
  return most;
}

AttentionLayout exchange_layout(const AttentionShape& shape, int64_t rows, int ulysses) {
  return {Placement(PlacementKind::kContiguous, rows * ulysses, 1, ulysses),
          HeadMap(shape.query_heads, shape.kv_heads, ulysses),
          false,
          1,
          shape.head_size,
          shape.data_type == DataType::kFloat32 ? 4 : 2,
          MaskKind::kCausal,
          0,
          {}};
}

}  // namespace

// Queries of `rows` tokens of this rank, to heads and back.
class TransferCalls::Heads {
 public:
  Heads(const AttentionShape& shape, int64_t rows, Group& ulysses)
      : layout_(exchange_layout(shape, rows, ulysses.size())),
        exchange_(layout_, 0, ulysses),
        rows_(rows),
        own_heads_(layout_.heads.query_count(ulysses.rank())),
        tokens_(rows * layout_.heads.query_heads() * layout_.head_size * layout_.element_bytes),
        heads_(rows * ulysses.size() * own_heads_ * layout_.head_size * layout_.element_bytes) {}

  void run() {
    if (layout_.element_bytes == sizeof(float)) {
      run_as<float>();
    } else {
      run_as<bf16>();
    }
  }
  // Both ways, the own part too.
  TransferCount count() const {
    return {2.0 * (layout_.ulysses_size() - 1), 2.0 * static_cast<double>(tokens_.size())};
  }

 private:
  template <class T>
  void run_as() {
    const int64_t d = layout_.head_size;
    const ExchangedTensor<T> tensors[] = {
        {HeadKind::kQuery,
         View<T, 4>(reinterpret_cast<T*>(tokens_.data()),
                    {1, rows_, layout_.heads.query_heads(), d}),
         View<T, 4>(reinterpret_cast<T*>(heads_.data()),
                    {1, rows_ * layout_.ulysses_size(), own_heads_, d})}};
    exchange_.to_heads<T>(tensors);
    exchange_.to_tokens<T>(tensors);
  }

  AttentionLayout layout_;
  HeadExchange exchange_;
  int64_t rows_, own_heads_;
  Buffer<std::byte> tokens_, heads_;
};

TransferCalls::TransferCalls(Group& group, const AttentionShape& shape, int hosts, bool quick)
    : group_(group) {
  const int ulysses = most_ulysses(group.size(), shape.query_heads);
  mesh_ = std::make_unique<Mesh>(group, 1, 1, group.size() / ulysses, ulysses);
  if (group.size() == 1) return;
  // What blocks of some hundred to some thousand tokens take.
  const std::vector<int64_t> sizes =
      quick ? std::vector{16 * kKib, 256 * kKib} : std::vector{64 * kKib, 512 * kKib, 4096 * kKib};
  const int64_t most = sizes.back();
  out_ = Buffer<std::byte>(most);
  in_ = Buffer<std::byte>(std::max(most, most / 4 * group.size()));
  for (const int64_t size : sizes) {
    add_shift(size, 1, Clock::kCpu, shift_);
    add_gather(size / 4);
    if (hosts > 1) add_shift(size, group.size() / hosts, Clock::kWall, network_);
  }
  if (ulysses > 1) {
    add_exchanges(shape,
                  quick ? std::vector<int64_t>{16, 64} : std::vector<int64_t>{256, 1024, 4096});
  }
}

TransferCalls::~TransferCalls() = default;

// Every rank sends to the rank `away` places on.
void TransferCalls::add_shift(int64_t bytes, int away, Clock clock, TransferProbes& to) {
  const int size = group_.size(), own = group_.rank();
  const int next = (own + away) % size, before = (own + size - away) % size;
  const auto call = [this, bytes, next, before] {
    RequestPtr requests[] = {group_.receive(in_.span().first(bytes), before, Tag::kUser),
                             group_.send(out_.span().first(bytes), next, Tag::kUser)};
    group_.wait_all(requests);
  };
  to.probes.push_back({call, clock});
  to.counts.push_back({1, static_cast<double>(bytes)});
}

void TransferCalls::add_gather(int64_t bytes) {
  const int size = group_.size();
  const std::vector<int64_t> parts(static_cast<size_t>(size), bytes);
  const auto call = [this, bytes, parts] {
    const auto parts_of_all = static_cast<int64_t>(parts.size());
    all_gather(group_, out_.span().first(bytes), in_.span().first(bytes * parts_of_all), parts);
  };
  gather_.probes.push_back({call});
  gather_.counts.push_back(
      {static_cast<double>(size - 1), static_cast<double>((size - 1) * bytes)});
}

void TransferCalls::add_exchanges(const AttentionShape& shape, const std::vector<int64_t>& rows) {
  for (const int64_t count : rows) {
    heads_.push_back(std::make_unique<Heads>(shape, count, mesh_->ulysses()));
    Heads& heads = *heads_.back();
    exchange_.probes.push_back({[&heads] { heads.run(); }});
    exchange_.counts.push_back(heads.count());
  }
}

}  // namespace odyssey
