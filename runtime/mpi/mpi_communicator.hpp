// Communicators between MPI processes.
#pragma once

#include <memory>

#include "runtime/call.hpp"
#include "runtime/crew.hpp"
#include "runtime/mpi/mpi_calls.hpp"

namespace echelon::mpi {

/// Takes `comm` over, whose ranks are the members of the group; frees it unless the crew failed
/// (freeing is a collective).
[[nodiscard]] std::unique_ptr<Communicator> communicator(Crew& crew, const Group& group,
                                                         MPI_Comm comm);

}  // namespace echelon::mpi
