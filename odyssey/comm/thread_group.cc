// SPDX-License-Identifier: Apache-2.0
// A transfer is a meeting of two halves in the mailbox of (sender, receiver). The half that comes
// first lies there as a ThreadRequest; the one that comes second takes it out and copies.
#include "odyssey/comm/thread_group.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "odyssey/base/error.h"
#include "odyssey/comm/backoff.h"

namespace odyssey {
namespace {

// The first failure of a run, seen by all groups of the run.
class Failure {
 public:
  void record(int rank, int ranks, bool user, const std::string& cause) {
    const std::lock_guard lock(mutex_);
    if (happened_.load(std::memory_order_relaxed)) return;
    user_ = user;
    text_ = user ? cause : fmt::format("rank {} of {} failed: {}", rank, ranks, cause);
    peer_text_ = fmt::format("rank {} of {} failed: {}", rank, ranks, cause);
    happened_.store(true, std::memory_order_release);
  }
  // For the ranks that did not fail.
  void throw_if_happened() const {
    if (happened_.load(std::memory_order_acquire)) throw RunError(peer_text_);
  }
  // For the caller of run_on_threads.
  void rethrow_if_happened() const {
    if (!happened_.load(std::memory_order_acquire)) return;
    if (user_) throw UserError(text_);
    throw RunError(text_);
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> happened_{false};
  bool user_ = false;
  std::string text_, peer_text_;  // written once, before happened_
};

class ThreadRequest;

struct Mailbox {
  std::mutex mutex;
  std::vector<ThreadRequest*> waiting;  // in order of arrival
};

// What the ranks of one group share.
struct Hub {
  Hub(int ranks, std::shared_ptr<Failure> shared_failure)
      : size(ranks),
        failure(std::move(shared_failure)),
        mailboxes(static_cast<size_t>(ranks) * static_cast<size_t>(ranks)),
        colours(static_cast<size_t>(ranks)),
        parts(static_cast<size_t>(ranks)),
        part_ranks(static_cast<size_t>(ranks)) {}

  const int size;
  const std::shared_ptr<Failure> failure;
  std::vector<Mailbox> mailboxes;  // [sender, receiver]

  // The split under way. The last rank to come fills parts and opens the next round.
  std::mutex split_mutex;
  std::vector<int> colours;
  std::vector<std::shared_ptr<Hub>> parts;
  std::vector<int> part_ranks;
  int arrived = 0;
  std::atomic<int64_t> round{0};
};

class ThreadRequest final : public Request {
 public:
  // kQueued to kCopying only under the mailbox lock; the copying rank sets the last state.
  enum class State { kQueued, kCopying, kDone, kMismatch };

  ThreadRequest(std::shared_ptr<Hub> hub, Mailbox& mailbox)
      : hub_(std::move(hub)), mailbox_(mailbox) {}

  // The memory may vanish right after this: leave the mailbox, or see the copy through.
  ~ThreadRequest() override {
    if (state.load(std::memory_order_acquire) == State::kQueued) {
      const std::lock_guard lock(mailbox_.mutex);
      std::erase(mailbox_.waiting, this);
    }
    Backoff backoff;
    while (state.load(std::memory_order_acquire) == State::kCopying) backoff.pause();
  }

  bool advance() override {
    switch (state.load(std::memory_order_acquire)) {
      case State::kDone:
        return true;
      case State::kMismatch:
        throw RunError(mismatch);
      case State::kQueued:
      case State::kCopying:
        break;
    }
    hub_->failure->throw_if_happened();
    return false;
  }

  const std::byte* source = nullptr;  // of a send
  std::byte* target = nullptr;        // of a receive
  bool is_send = false;
  int64_t size = 0;
  Tag tag = Tag::kUser;
  std::string mismatch;  // written before state
  std::atomic<State> state{State::kQueued};

 private:
  std::shared_ptr<Hub> hub_;
  Mailbox& mailbox_;
};

class ThreadGroup final : public Group {
 public:
  ThreadGroup(std::shared_ptr<Hub> hub, int rank, const std::string& name)
      : Group(rank, hub->size, name), hub_(std::move(hub)) {}

  std::unique_ptr<Group> split(int colour, const std::string& name) override;
  std::unique_ptr<Group> split_by_host(const std::string& name) override { return split(0, name); }
  bool is_one_process() const override { return true; }

 private:
  RequestPtr start_send(std::span<const std::byte> message, int to, Tag tag) override {
    return meet(true, message.data(), nullptr, static_cast<int64_t>(message.size()), to, tag);
  }
  RequestPtr start_receive(std::span<std::byte> message, int from, Tag tag) override {
    return meet(false, nullptr, message.data(), static_cast<int64_t>(message.size()), from, tag);
  }
  RequestPtr meet(bool is_send, const std::byte* source, std::byte* target, int64_t size, int peer,
                  Tag tag);
  std::string describe_mismatch(bool is_send, int64_t size, int64_t other_size, int peer,
                                Tag tag) const;

  std::shared_ptr<Hub> hub_;
};

// Takes the oldest half that fits out of the mailbox, which is locked; null when there is none.
ThreadRequest* take(Mailbox& mailbox, bool is_send, Tag tag) {
  auto& waiting = mailbox.waiting;
  const auto found = std::find_if(waiting.begin(), waiting.end(), [&](const ThreadRequest* half) {
    return half->is_send == is_send && half->tag == tag;
  });
  if (found == waiting.end()) return nullptr;
  ThreadRequest* half = *found;
  waiting.erase(found);
  half->state.store(ThreadRequest::State::kCopying, std::memory_order_relaxed);
  return half;
}

RequestPtr ThreadGroup::meet(bool is_send, const std::byte* source, std::byte* target, int64_t size,
                             int peer, Tag tag) {
  hub_->failure->throw_if_happened();
  const int sender = is_send ? rank() : peer;
  const int receiver = is_send ? peer : rank();
  Mailbox& mailbox = hub_->mailboxes[static_cast<size_t>(sender) * static_cast<size_t>(hub_->size) +
                                     static_cast<size_t>(receiver)];
  ThreadRequest* other = nullptr;
  {
    const std::lock_guard lock(mailbox.mutex);
    other = take(mailbox, !is_send, tag);
    if (other == nullptr) {
      auto request = std::make_unique<ThreadRequest>(hub_, mailbox);
      request->source = source;
      request->target = target;
      request->is_send = is_send;
      request->size = size;
      request->tag = tag;
      mailbox.waiting.push_back(request.get());
      return request;
    }
  }
  if (other->size != size) {
    const std::string text = describe_mismatch(is_send, size, other->size, peer, tag);
    other->mismatch = text;
    other->state.store(ThreadRequest::State::kMismatch, std::memory_order_release);
    throw RunError(text);
  }
  if (size > 0) {
    std::memcpy(is_send ? other->target : target, is_send ? source : other->source,
                static_cast<size_t>(size));
  }
  // The other rank may destroy its half from here on.
  other->state.store(ThreadRequest::State::kDone, std::memory_order_release);
  return nullptr;
}

std::string ThreadGroup::describe_mismatch(bool is_send, int64_t size, int64_t other_size, int peer,
                                           Tag tag) const {
  return fmt::format(
      "{}: rank {} of group \"{}\" sends {} bytes to rank {}, which receives {} bytes",
      name_of(tag), is_send ? rank() : peer, name(), is_send ? size : other_size,
      is_send ? peer : rank(), is_send ? other_size : size);
}

// Fills parts and part_ranks: one new hub for each colour. Called by the last rank, under the lock.
void make_parts(Hub& hub) {
  for (size_t rank = 0; rank < hub.colours.size(); ++rank) {
    const auto first = std::find(hub.colours.begin(), hub.colours.end(), hub.colours[rank]);
    const auto here = hub.colours.begin() + static_cast<int64_t>(rank);
    hub.part_ranks[rank] = static_cast<int>(std::count(first, here, *first));
    const auto leader = static_cast<size_t>(first - hub.colours.begin());
    if (leader == rank) {
      const auto ranks = std::count(first, hub.colours.end(), *first);
      hub.parts[rank] = std::make_shared<Hub>(static_cast<int>(ranks), hub.failure);
    } else {
      hub.parts[rank] = hub.parts[leader];
    }
  }
}

std::unique_ptr<Group> ThreadGroup::split(int colour, const std::string& name_of_part) {
  ODYSSEY_CHECK(colour >= 0, "colour {}", colour);
  const int64_t round = hub_->round.load(std::memory_order_acquire);
  {
    const std::lock_guard lock(hub_->split_mutex);
    hub_->colours[static_cast<size_t>(rank())] = colour;
    if (++hub_->arrived == size()) {
      make_parts(*hub_);
      hub_->arrived = 0;
      hub_->round.store(round + 1, std::memory_order_release);
    }
  }
  Backoff backoff;
  while (hub_->round.load(std::memory_order_acquire) == round) {
    hub_->failure->throw_if_happened();
    if (backoff.seconds() > wait_limit_seconds()) {
      throw RunError(fmt::format(
          "split: rank {} of {} in group \"{}\" waited {:.3g} s for the other ranks to form \"{}\"",
          rank(), size(), name(), wait_limit_seconds(), name_of_part));
    }
    backoff.pause();
  }
  const std::lock_guard lock(hub_->split_mutex);
  // The next round cannot end before this rank enters it, so what was filled in is still there.
  std::shared_ptr<Hub>& part = hub_->parts[static_cast<size_t>(rank())];
  const int part_rank = hub_->part_ranks[static_cast<size_t>(rank())];
  auto group = std::make_unique<ThreadGroup>(std::move(part), part_rank, name_of_part);
  group->take_limits_from(*this);
  return group;
}

}  // namespace

void run_on_threads(int ranks, const std::function<void(Group&)>& body) {
  ODYSSEY_CHECK(ranks >= 1, "{} ranks", ranks);
  const auto failure = std::make_shared<Failure>();
  const auto hub = std::make_shared<Hub>(ranks, failure);
  if (ranks == 1) {
    ThreadGroup world(hub, 0, "world");
    body(world);
    return;
  }
  const auto run_rank = [&](int rank) {
    try {
      ThreadGroup world(hub, rank, "world");
      body(world);
    } catch (const UserError& error) {
      failure->record(rank, ranks, true, error.what());
    } catch (const std::exception& error) {
      failure->record(rank, ranks, false, error.what());
    } catch (...) {
      failure->record(rank, ranks, false, "an exception without a text");
    }
  };
  {
    std::vector<std::jthread> threads;  // joined at the end of the scope
    threads.reserve(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      try {
        threads.emplace_back(run_rank, rank);
      } catch (const std::system_error& error) {
        failure->record(rank, ranks, false,
                        fmt::format("cannot start its thread: {}", error.what()));
        break;
      }
    }
  }
  failure->rethrow_if_happened();
}

}  // namespace odyssey
