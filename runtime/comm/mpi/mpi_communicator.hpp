// Communicators between MPI processes.
#pragma once

#include <memory>

#include "runtime/comm/call.hpp"
#include "runtime/comm/mpi/mpi_calls.hpp"
#include "runtime/threads/run_threads.hpp"

namespace echelon::mpi {

/// Takes ownership of `comm`, whose ranks are the members of the group; frees it unless the run
/// failed (freeing is a collective).
[[nodiscard]] std::unique_ptr<Communicator> communicator(RunThreads& run_threads,
                                                         const Group& group, MPI_Comm comm);

}  // namespace echelon::mpi
