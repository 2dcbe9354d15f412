// SPDX-License-Identifier: Apache-2.0
// Stands in for mpi_group.cc in a build without MPI.
#include "odyssey/base/error.h"
#include "odyssey/comm/mpi_group.h"

namespace odyssey {
namespace {

UserError no_mpi() {
  return user_error("ranks as MPI processes", "a build with MPI", "a build without MPI",
                    "Install Open MPI (Debian: libopenmpi-dev openmpi-bin) and build again with "
                    "-DODYSSEY_MPI=ON, or start one process without mpirun: its ranks are threads");
}

}  // namespace

bool mpi_available() {
  return false;
}

MpiSession::MpiSession() : exceptions_at_start_(0) {
  throw no_mpi();
}
MpiSession::~MpiSession() = default;
std::unique_ptr<Group> MpiSession::world() {
  throw no_mpi();
}
// Never reached: no session can be opened.
void MpiSession::abort(int code) {
  std::exit(code);
}

}  // namespace odyssey
