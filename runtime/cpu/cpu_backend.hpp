// The CPU backend: queues are the threads that call.
#pragma once

#include <memory>

#include "runtime/backend/processor.hpp"

namespace echelon {

/// A rank of its own for whoever has no backend, such as measurements. `threads`: of its kernels.
template <class T>
[[nodiscard]] std::unique_ptr<Processor<T>> cpu_processor(int threads);

/// The world's local ranks, with so many threads each.
template <class T>
[[nodiscard]] std::unique_ptr<Backend<T>> cpu_backend(std::unique_ptr<World> world, int threads);

}  // namespace echelon
