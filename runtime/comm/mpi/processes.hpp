// One MPI process per rank. This header does not depend on MPI; in a program built without MPI
// start() returns an error.
//
//   start() → world() → run the threads → destroy the world → finish(), and main returns 0;
//   any failure in between ends in abort(), which ends the other processes as well.
#pragma once

#include <memory>

#include "core/base/result.hpp"
#include "core/base/units.hpp"
#include "runtime/comm/world.hpp"

namespace echelon::mpi {

struct Place {
  int rank = 0;
  int processes = 1;
};

/// Once per process, before it has threads: from here on the world handles SIGTERM, with which
/// mpirun ends the others when one process fails.
[[nodiscard]] Result<Place> start();

/// The local rank is this process; the others create theirs from the same plan. Members of
/// `run_threads` use one role each at a time; the run is stopped (RunFailure::peer_lost) when a
/// process of this machine is lost, or when mpirun ends the job because one of another machine is.
[[nodiscard]] Result<std::unique_ptr<World>> world(RunThreads& run_threads,
                                                   const ParallelPlan& plan,
                                                   const ModelSpec& model);

/// Regular end. All processes call it; throws RunFailure::hang if they do not within `limit`.
void finish(Seconds limit);

/// End after a failure: makes mpirun end all processes and exits with this code. Messages in flight
/// may still use memory that was freed during stack unwinding, so nothing else follows a failure.
[[noreturn]] void abort(int exit_code);

}  // namespace echelon::mpi
