// SPDX-License-Identifier: Apache-2.0
// Group: ranks that communicate. Two backends: thread_group.h (ranks are threads of one process)
// and mpi_group.h (ranks are processes). A backend supplies only non-blocking point-to-point
// transfers and split; every collective is built once on top of them (all_to_all.h, all_gather.h,
// ...), so both backends add the same numbers in the same order and give the same bits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace odyssey {

// Keeps the messages of different operations apart. Messages with equal sender, receiver and tag
// arrive in the order in which they were sent.
enum class Tag : int {
  kUser,
  kShift,
  kShiftGradient,
  kAllToAll,
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kBarrier,
  kBroadcast
};
const char* name_of(Tag tag);

// One transfer under way. Completed by Group::wait or a Group::test that returns true; the memory
// of the message must stay untouched until then. Destroying it earlier gives the transfer up:
// thread ranks never touch the memory afterwards. With MPI this holds for receives; a rank that
// leaves a send behind must end the run.
class Request {
 public:
  virtual ~Request() = default;

 protected:
  Request() = default;

 private:
  friend class Group;
  // Makes progress; true when complete. Throws RunError when it can never complete.
  virtual bool advance() = 0;

  // For messages; set by Group.
  bool sending_ = false;
  int peer_ = -1;
  Tag tag_ = Tag::kUser;
  int64_t bytes_ = 0;
};
using RequestPtr = std::unique_ptr<Request>;

// Bytes and messages that this rank handed to other ranks (never to itself) through one group, and
// the wall time that it spent in wait and wait_all: what no computation hid.
struct Traffic {
  int64_t bytes_sent = 0;
  int64_t messages_sent = 0;
  double seconds_waiting = 0;
};

class Group {
 public:
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // As in messages: "world", "context", ...
  const std::string& name() const { return name_; }
  const Traffic& traffic() const { return traffic_; }

  // Starts a transfer of any size (above the piece limit it goes in pieces). A receive must have
  // exactly the size of its send; a difference is a RunError that names both. peer may not be this
  // rank. A null request is a transfer that is complete already.
  RequestPtr send(std::span<const std::byte> message, int to, Tag tag);
  RequestPtr receive(std::span<std::byte> message, int from, Tag tag);
  // Makes progress; true when the transfer is complete. A null request is complete.
  bool test(RequestPtr& request);
  // Polls until complete and gives the processor away meanwhile. When nothing completes for
  // wait_limit_seconds it throws RunError that names operation, group and peer; when another rank
  // has failed, it throws RunError with that rank and its cause.
  void wait(RequestPtr& request);
  void wait_all(std::span<RequestPtr> requests);

  // A new group of the ranks that pass the same colour (>= 0), ordered by this group's rank; it
  // takes over the limits set below. Collective.
  virtual std::unique_ptr<Group> split(int colour, const std::string& name) = 0;
  // The same for the ranks on one host. Collective.
  virtual std::unique_ptr<Group> split_by_host(const std::string& name) = 0;
  // Whether all ranks are threads of this process.
  virtual bool is_one_process() const = 0;

  // Longest wait before a transfer counts as lost.
  void set_wait_limit_seconds(double seconds) { wait_limit_seconds_ = seconds; }
  // Largest piece that is handed to MPI at once, 1 to 2^31-1 bytes and equal on all ranks. Thread
  // ranks copy a message of any size in one go.
  void set_piece_limit_bytes(int64_t bytes);

 protected:
  Group(int rank, int size, std::string name) : rank_(rank), size_(size), name_(std::move(name)) {}
  void take_limits_from(const Group& parent);
  double wait_limit_seconds() const { return wait_limit_seconds_; }
  int64_t piece_limit_bytes() const { return piece_limit_bytes_; }

 private:
  // What a backend supplies. Null when complete at once.
  virtual RequestPtr start_send(std::span<const std::byte> message, int to, Tag tag) = 0;
  virtual RequestPtr start_receive(std::span<std::byte> message, int from, Tag tag) = 0;
  void check_peer(int peer) const;
  [[noreturn]] void throw_wait_limit(const Request& request) const;

  int rank_;
  int size_;
  std::string name_;
  Traffic traffic_;
  double wait_limit_seconds_ = 300;
  int64_t piece_limit_bytes_ = int64_t{1} << 30;  // MPI counts are 32-bit; 1 GiB leaves room
};

}  // namespace odyssey
