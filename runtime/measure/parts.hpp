// What measure_machine() and its like are made of.
#pragma once

#include <algorithm>
#include <vector>

#include "core/measurements.hpp"
#include "runtime/communicator.hpp"

namespace echelon {

/// The lowest decile: what an operation takes while nothing disturbs it.
[[nodiscard]] inline Seconds undisturbed(std::vector<Seconds> times) {
  std::sort(times.begin(), times.end());
  return times.at(times.size() / 10);
}

/// "empty step" (core/measurements.hpp): the executor with a device that does nothing.
[[nodiscard]] std::vector<Measurement> measure_host(int ranks, int cores);

/// All collectives and sizes among the members of a group of `ranks`, each of which calls this at
/// the same time; the times are the caller's.
[[nodiscard]] std::vector<Measurement> time_collectives(Communicator& end, int ranks, int cores);

/// time_collectives between threads, as seen by rank 0.
[[nodiscard]] std::vector<Measurement> measure_collectives_of_threads(int ranks, int cores);

}  // namespace echelon
