// Times the kernels and communicators of this backend on the machine it runs on.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/run/measurements.hpp"

namespace echelon {

/// Every operation of Measurement for ranks of 1, 2, 4 ... and all `cores`, with as many concurrent
/// ranks as fill them. `tell` receives the current operation. Takes some seconds per size of a
/// rank.
[[nodiscard]] std::vector<Measurement> measure_machine(
    int cores, const std::function<void(const std::string&)>& log);

/// Collectives between MPI processes, of which this one is one of `ranks` (mpi::start was called).
[[nodiscard]] std::vector<Measurement> measure_collectives_of_processes(int ranks, int cores);

}  // namespace echelon
