// SPDX-License-Identifier: Apache-2.0
// For tests only: loaded before MPI (LD_PRELOAD), it makes every send of this process synchronous,
// complete only once its receive has started. Small messages are otherwise buffered, and a program
// that relies on that hangs on the day its messages grow.
#include <cstdio>

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

namespace {
long long sends = 0;
}  // namespace

extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag,
                         MPI_Comm communicator, MPI_Request* request) {
  ++sends;
  return PMPI_Issend(data, count, type, to, tag, communicator, request);
}

extern "C" int MPI_Send(const void* data, int count, MPI_Datatype type, int to, int tag,
                        MPI_Comm communicator) {
  ++sends;
  return PMPI_Ssend(data, count, type, to, tag, communicator);
}

// So that a test can see that this file was in use.
extern "C" int MPI_Finalize() {
  if (sends > 0) std::fprintf(stderr, "synchronous sends: %lld\n", sends);
  return PMPI_Finalize();
}
