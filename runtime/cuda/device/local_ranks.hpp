// What all ranks of this process do together before the run has threads for them.
#pragma once

#include <functional>

#include "runtime/comm/world.hpp"
#include "runtime/threads/run_threads.hpp"

namespace echelon::cuda {

/// Calls `work` for each rank that is local to `world`, each on a thread of its own, so that they
/// can meet, and others of other processes. When one throws, the run stops with that failure, and
/// it is thrown here. Not for directed runs, whose members alone may wait.
void on_local_ranks(RunThreads& run_threads, const World& world,
                    const std::function<void(int rank)>& work);

}  // namespace echelon::cuda
