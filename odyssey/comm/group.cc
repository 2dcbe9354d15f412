// SPDX-License-Identifier: Apache-2.0
// What both backends share: checks, traffic counts, waiting and its time limit.
#include "odyssey/comm/group.h"

#include <chrono>

#include "odyssey/base/error.h"
#include "odyssey/comm/backoff.h"

namespace odyssey {
namespace {

// Adds the time of its life to a sum, also when an exception ends it.
class Stopwatch {
 public:
  explicit Stopwatch(double& sum) : sum_(sum) {}
  ~Stopwatch() { sum_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double& sum_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

const char* name_of(Tag tag) {
  switch (tag) {
    case Tag::kUser:
      return "transfer";
    case Tag::kShift:
      return "shift";
    case Tag::kShiftGradient:
      return "shift_gradient";
    case Tag::kAllToAll:
      return "all_to_all";
    case Tag::kAllGather:
      return "all_gather";
    case Tag::kReduceScatter:
      return "reduce_scatter";
    case Tag::kAllReduce:
      return "all_reduce";
    case Tag::kBarrier:
      return "barrier";
    case Tag::kBroadcast:
      return "broadcast";
  }
  return "unknown operation";
}

void Group::check_peer(int peer) const {
  ODYSSEY_CHECK(0 <= peer && peer < size_ && peer != rank_,
                "peer {} of rank {} in group \"{}\" of {} ranks", peer, rank_, name_, size_);
}

RequestPtr Group::send(std::span<const std::byte> message, int to, Tag tag) {
  check_peer(to);
  RequestPtr request = start_send(message, to, tag);
  const auto bytes = static_cast<int64_t>(message.size());
  traffic_.bytes_sent += bytes;
  ++traffic_.messages_sent;
  if (request) {
    request->sending_ = true;
    request->peer_ = to;
    request->tag_ = tag;
    request->bytes_ = bytes;
  }
  return request;
}

RequestPtr Group::receive(std::span<std::byte> message, int from, Tag tag) {
  check_peer(from);
  RequestPtr request = start_receive(message, from, tag);
  if (request) {
    request->peer_ = from;
    request->tag_ = tag;
    request->bytes_ = static_cast<int64_t>(message.size());
  }
  return request;
}

bool Group::test(RequestPtr& request) {
  if (request && request->advance()) request.reset();
  return !request;
}

void Group::wait(RequestPtr& request) {
  wait_all({&request, 1});
}

void Group::wait_all(std::span<RequestPtr> requests) {
  Backoff backoff;
  const Stopwatch stopwatch(traffic_.seconds_waiting);
  for (;;) {
    const Request* open = nullptr;
    bool moved = false;
    for (RequestPtr& request : requests) {
      if (!request) continue;
      if (test(request)) {
        moved = true;
      } else if (open == nullptr) {
        open = request.get();
      }
    }
    if (open == nullptr) break;
    if (moved) backoff.restart();
    if (backoff.seconds() > wait_limit_seconds_) throw_wait_limit(*open);
    backoff.pause();
  }
}

void Group::throw_wait_limit(const Request& request) const {
  throw RunError(fmt::format(
      "{}: rank {} of {} in group \"{}\" waited {:.3g} s for {} {} bytes {} rank {}. That rank has "
      "stopped, or is slower than the limit: raise comm_timeout_seconds",
      name_of(request.tag_), rank_, size_, name_, wait_limit_seconds_,
      request.sending_ ? "sending" : "receiving", request.bytes_, request.sending_ ? "to" : "from",
      request.peer_));
}

void Group::set_piece_limit_bytes(int64_t bytes) {
  ODYSSEY_CHECK(1 <= bytes && bytes <= INT32_MAX, "piece limit of {} bytes", bytes);
  piece_limit_bytes_ = bytes;
}

void Group::take_limits_from(const Group& parent) {
  wait_limit_seconds_ = parent.wait_limit_seconds_;
  piece_limit_bytes_ = parent.piece_limit_bytes_;
}

}  // namespace odyssey
