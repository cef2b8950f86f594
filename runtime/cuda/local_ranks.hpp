// What all ranks of this process do together before the run has threads for them.
#pragma once

#include <functional>

#include "runtime/crew.hpp"
#include "runtime/world.hpp"

namespace echelon::cuda {

/// Calls `work` for each rank that is local to `world`, each on a thread of its own, so that they
/// can meet, and others of other processes. When one throws, the crew ends with that, and it is
/// thrown here. Not for directed crews, whose members alone may wait.
void on_local_ranks(Crew& crew, const World& world, const std::function<void(int rank)>& work);

}  // namespace echelon::cuda
