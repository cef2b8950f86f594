// Communicators between threads of one process.
#pragma once

#include <memory>
#include <vector>

#include "runtime/comm/call.hpp"
#include "runtime/threads/run_threads.hpp"

namespace echelon {

/// One communicator per member, in member order; each is used by one member of `run_threads` at a
/// time, during its lifetime. The last member to arrive starts the work of a call piece by piece;
/// waiting members take pieces as well.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> thread_communicators(
    RunThreads& run_threads, const Group& group);

}  // namespace echelon
