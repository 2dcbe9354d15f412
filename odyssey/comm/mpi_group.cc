// SPDX-License-Identifier: Apache-2.0
// The MPI backend: MPI_Isend and MPI_Irecv of bytes on a communicator of its own, nothing more.
//
// MPI counts are 32-bit, so a message travels in pieces (comm/pieces.h), and a mismatch of sizes is
// found however large they are.
#include "odyssey/comm/mpi_group.h"

#include <exception>
#include <vector>

// The C++ bindings of old are not used.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include "odyssey/base/error.h"
#include "odyssey/comm/pieces.h"

namespace odyssey {
namespace {

std::string text_of(int error) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(error, text, &length) != MPI_SUCCESS) return fmt::format("error {}", error);
  return {text, static_cast<size_t>(length)};
}

void check_mpi(int result, const std::string& what) {
  if (result != MPI_SUCCESS) throw RunError(fmt::format("{} failed: {}", what, text_of(result)));
}

int class_of(int error) {
  int error_class = MPI_ERR_UNKNOWN;
  MPI_Error_class(error, &error_class);
  return error_class;
}

bool is_finalized() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  return finalized != 0;
}

// One message: its pieces in order.
class MpiRequest final : public Request {
 public:
  MpiRequest(const Group& group, int peer, Tag tag, bool is_send, int64_t size, int64_t piece_limit)
      : name_(group.name()),
        rank_(group.rank()),
        peer_(peer),
        tag_(tag),
        is_send_(is_send),
        cut_{size, piece_limit},
        pieces_(static_cast<size_t>(cut_.count()), MPI_REQUEST_NULL) {}

  // Gives up what is under way. A receive no longer writes to memory that may vanish now.
  ~MpiRequest() override {
    if (done_ == pieces_.size() || is_finalized()) return;
    for (size_t i = done_; i < pieces_.size(); ++i) {
      if (pieces_[i] == MPI_REQUEST_NULL) continue;
      if (!is_send_) MPI_Cancel(&pieces_[i]);
      MPI_Request_free(&pieces_[i]);
    }
  }

  const Pieces& cut() const { return cut_; }
  MPI_Request* piece(int64_t index) { return &pieces_[static_cast<size_t>(index)]; }

  bool advance() override {
    for (; done_ < pieces_.size(); ++done_) {
      int complete = 0;
      MPI_Status status;
      const int result = MPI_Test(&pieces_[done_], &complete, &status);
      if (class_of(result) == MPI_ERR_TRUNCATE) throw_mismatch("more");
      check_mpi(result, describe());
      if (complete == 0) return false;
      if (!is_send_) {
        int received = 0;
        MPI_Get_count(&status, MPI_BYTE, &received);
        const auto index = static_cast<int64_t>(done_);
        if (received != cut_.bytes(index)) {
          throw_mismatch(fmt::format("{}", cut_.begin(index) + received));
        }
      }
    }
    return true;
  }

  std::string describe() const {
    return fmt::format("{}: {} {} bytes {} rank {} on rank {} of group \"{}\"", name_of(tag_),
                       is_send_ ? "sending" : "receiving", cut_.size, is_send_ ? "to" : "from",
                       peer_, rank_, name_);
  }

 private:
  [[noreturn]] void throw_mismatch(const std::string& sent) const {
    throw RunError(fmt::format(
        "{}: rank {} of group \"{}\" sends {} bytes to rank {}, which receives {} bytes",
        name_of(tag_), peer_, name_, sent, rank_, cut_.size));
  }

  std::string name_;
  int rank_;
  int peer_;
  Tag tag_;
  bool is_send_;
  Pieces cut_;
  std::vector<MPI_Request> pieces_;
  size_t done_ = 0;  // pieces before this one are complete
};

int rank_in(MPI_Comm communicator) {
  int rank = 0;
  MPI_Comm_rank(communicator, &rank);
  return rank;
}

int size_of(MPI_Comm communicator) {
  int size = 0;
  MPI_Comm_size(communicator, &size);
  return size;
}

// Owns its communicator.
class MpiGroup final : public Group {
 public:
  MpiGroup(MPI_Comm communicator, const std::string& name)
      : Group(rank_in(communicator), size_of(communicator), name), communicator_(communicator) {
    MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
  }
  // Freeing is collective, so it is left out while an exception passes.
  ~MpiGroup() override {
    if (std::uncaught_exceptions() == 0 && !is_finalized()) MPI_Comm_free(&communicator_);
  }

  std::unique_ptr<Group> split(int colour, const std::string& name_of_part) override {
    ODYSSEY_CHECK(colour >= 0, "colour {}", colour);
    MPI_Comm part = MPI_COMM_NULL;
    const int result = MPI_Comm_split(communicator_, colour, rank(), &part);
    return part_of_this(result, part, name_of_part);
  }

  std::unique_ptr<Group> split_by_host(const std::string& name_of_part) override {
    MPI_Comm part = MPI_COMM_NULL;
    const int result =
        MPI_Comm_split_type(communicator_, MPI_COMM_TYPE_SHARED, rank(), MPI_INFO_NULL, &part);
    return part_of_this(result, part, name_of_part);
  }

  bool is_one_process() const override { return false; }

 private:
  std::unique_ptr<Group> part_of_this(int result, MPI_Comm part, const std::string& name_of_part) {
    check_mpi(result, fmt::format("splitting group \"{}\" into \"{}\"", name(), name_of_part));
    auto group = std::make_unique<MpiGroup>(part, name_of_part);
    group->take_limits_from(*this);
    return group;
  }

  RequestPtr start_send(std::span<const std::byte> message, int to, Tag tag) override {
    auto request = std::make_unique<MpiRequest>(
        *this, to, tag, true, static_cast<int64_t>(message.size()), piece_limit_bytes());
    for (int64_t piece = 0; piece < request->cut().count(); ++piece) {
      const int result =
          MPI_Isend(message.data() + request->cut().begin(piece), request->cut().bytes(piece),
                    MPI_BYTE, to, static_cast<int>(tag), communicator_, request->piece(piece));
      check_mpi(result, request->describe());
    }
    return request;
  }

  RequestPtr start_receive(std::span<std::byte> message, int from, Tag tag) override {
    auto request = std::make_unique<MpiRequest>(
        *this, from, tag, false, static_cast<int64_t>(message.size()), piece_limit_bytes());
    for (int64_t piece = 0; piece < request->cut().count(); ++piece) {
      const int result =
          MPI_Irecv(message.data() + request->cut().begin(piece), request->cut().bytes(piece),
                    MPI_BYTE, from, static_cast<int>(tag), communicator_, request->piece(piece));
      check_mpi(result, request->describe());
    }
    return request;
  }

  MPI_Comm communicator_;
};

}  // namespace

bool mpi_available() {
  return true;
}

MpiSession::MpiSession() : exceptions_at_start_(std::uncaught_exceptions()) {
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "starting MPI");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (provided < MPI_THREAD_FUNNELED) {
    throw RunError("this MPI library does not support threads (MPI_THREAD_FUNNELED)");
  }
}

MpiSession::~MpiSession() {
  if (std::uncaught_exceptions() == exceptions_at_start_) MPI_Finalize();
}

std::unique_ptr<Group> MpiSession::world() {
  MPI_Comm communicator = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &communicator), "duplicating the MPI world");
  return std::make_unique<MpiGroup>(communicator, "world");
}

void MpiSession::abort(int code) {
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);  // MPI promises to end the process, not never to return
}

}  // namespace odyssey
