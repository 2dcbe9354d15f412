// SPDX-License-Identifier: Apache-2.0
#include "odyssey/comm/agreement.h"

#include <vector>

#include "odyssey/base/error.h"
#include "odyssey/comm/all_gather.h"
#include "odyssey/comm/broadcast.h"

namespace odyssey {
namespace {

// One number from every rank.
std::vector<uint64_t> gather_numbers(Group& group, uint64_t mine) {
  const auto ranks = static_cast<size_t>(group.size());
  std::vector<uint64_t> all(ranks);
  const std::vector<int64_t> bytes(ranks, static_cast<int64_t>(sizeof(mine)));
  all_gather(group, std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)),
             bytes);
  return all;
}

}  // namespace

void check_agreement(Group& group, uint64_t hash, const std::string& what) {
  const std::vector<uint64_t> hashes = gather_numbers(group, hash);
  for (size_t rank = 1; rank < hashes.size(); ++rank) {
    if (hashes[rank] == hashes[0]) continue;
    throw user_error(
        what, fmt::format("the same on all {} ranks", group.size()),
        fmt::format("hash {:016x} on rank 0 and {:016x} on rank {}", hashes[0], hashes[rank], rank),
        "Start all ranks with the same program, configuration and files");
  }
}

void fail_together(Group& group, const std::string& error_or_empty) {
  const std::vector<uint64_t> lengths = gather_numbers(group, error_or_empty.size());
  for (size_t rank = 0; rank < lengths.size(); ++rank) {
    if (lengths[rank] == 0) continue;
    std::string text(lengths[rank], ' ');
    if (static_cast<size_t>(group.rank()) == rank) text = error_or_empty;
    broadcast(group, std::as_writable_bytes(std::span(text)), static_cast<int>(rank));
    throw UserError(text);
  }
}

}  // namespace odyssey
