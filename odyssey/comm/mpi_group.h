// SPDX-License-Identifier: Apache-2.0
// Ranks as MPI processes. Only mpi_group.cc knows MPI; a build without it compiles no_mpi.cc, where
// opening a session is refused.
#pragma once
#include <cstdlib>
#include <memory>

#include "odyssey/comm/group.h"

namespace odyssey {

// True when this build contains the MPI backend.
bool mpi_available();

// True when mpirun or srun started this process (Open MPI, MPICH and Slurm set these).
inline bool launched_by_mpi() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMI_RANK") != nullptr ||
         std::getenv("PMIX_RANK") != nullptr;
}

// MPI from start to end; one for each process, and only the thread that made it may communicate.
class MpiSession {
 public:
  // Throws UserError in a build without MPI, RunError when MPI does not start.
  MpiSession();
  // Ends MPI, after all groups. While an exception passes it does not: the end would wait for ranks
  // that wait for this one. Catch inside the session, print, and call abort.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  // A group "world" of all processes, with a communicator of its own. Collective.
  std::unique_ptr<Group> world();
  // Ends all processes of the run with this exit code. Prints nothing itself.
  [[noreturn]] void abort(int code);

 private:
  int exceptions_at_start_;
};

}  // namespace odyssey
