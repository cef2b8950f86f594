// The C interface of MPI, and the translation of its error codes.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <string>

#include "runtime/threads/failure.hpp"

namespace echelon::mpi {

/// Communicators return errors (MPI_ERRORS_RETURN); in a correct program nearly all of them mean
/// that a process or the connection to it is lost.
inline void check(int code, const std::string& where) {
  if (code == MPI_SUCCESS) return;
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  text.resize(static_cast<std::size_t>(length));
  throw RunFailure(RunFailure::Kind::peer_lost, where + ": MPI says " + text);
}

}  // namespace echelon::mpi
