// Work that all ranks of this process do together before the run has threads for them.
#pragma once

#include <functional>

#include "runtime/comm/world.hpp"
#include "runtime/threads/run_threads.hpp"

namespace echelon {

/// Calls `work` for each rank that is local to `world`, each on its own thread, so that they can
/// wait for each other and for ranks of other processes. If one throws, the run stops with that
/// failure, which is rethrown here. Not for directed runs, in which only members may wait.
void on_local_ranks(RunThreads& run_threads, const World& world,
                    const std::function<void(int rank)>& work);

}  // namespace echelon
