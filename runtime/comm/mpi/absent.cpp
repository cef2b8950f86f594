// Replaces the MPI sources in a program built without MPI.
#include <cstdlib>

#include "runtime/comm/mpi/processes.hpp"

namespace echelon::mpi {
namespace {

Error built_without_mpi() {
  return environment_error("mpi", "this program was built without MPI",
                           "install libopenmpi-dev and build again");
}

}  // namespace

Result<Place> start() { return built_without_mpi(); }
Result<std::unique_ptr<World>> world(RunThreads&, const ParallelPlan&, const ModelSpec&) {
  return built_without_mpi();
}
void finish(Seconds) {}
void abort(int exit_code) { std::_Exit(exit_code); }

}  // namespace echelon::mpi
