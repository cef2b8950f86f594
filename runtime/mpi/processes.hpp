// One MPI process per rank. This header knows nothing of MPI; a program built without MPI gets an
// error from start().
//
//   start() → world() → run the crew → destroy the world → finish(), and main returns 0;
//   whatever goes wrong in between ends in abort(), which ends the other processes as well.
#pragma once

#include <memory>

#include "core/base/result.hpp"
#include "core/base/units.hpp"
#include "runtime/world.hpp"

namespace echelon::mpi {

struct Place {
  int rank = 0;
  int processes = 1;
};

/// Once per process, before it has threads: SIGTERM, with which mpirun ends the others when one
/// process fails, is from here on a matter of the world.
[[nodiscard]] Result<Place> start();

/// The local rank is this process; the others, too, make theirs of the same plan. Members of `crew`
/// use one line each at a time; the crew ends (RunFailure::peer_lost) when a process of this
/// machine is gone, or when mpirun ends the job because one of another machine is.
[[nodiscard]] Result<std::unique_ptr<World>> world(Crew& crew, const ParallelPlan& plan,
                                                   const ModelSpec& model);

/// The good end. All processes meet here; throws RunFailure::hang when they do not within `limit`.
void finish(Seconds limit);

/// The other end: tells mpirun to end all processes and leaves with this exit code. What messages
/// are under way may still use memory that its owner gave up while an exception passed, so nothing
/// else follows a failure.
[[noreturn]] void abort(int exit_code);

}  // namespace echelon::mpi
