// The CPU backend: its queues are the calling threads.
#pragma once

#include <memory>

#include "runtime/backend/processor.hpp"

namespace echelon {

/// A single rank for callers without a backend, such as measurements. `threads`: of its kernels.
template <class T>
[[nodiscard]] std::unique_ptr<Processor<T>> cpu_processor(int threads);

/// The world's local ranks, with this many threads each.
template <class T>
[[nodiscard]] std::unique_ptr<Backend<T>> cpu_backend(std::unique_ptr<World> world, int threads);

}  // namespace echelon
