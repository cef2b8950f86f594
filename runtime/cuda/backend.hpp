// The CUDA backend, opened by the plugin.
#pragma once

#include <memory>

#include "core/base/result.hpp"
#include "core/plan/plan_file.hpp"
#include "runtime/backend/processor.hpp"

namespace echelon::cuda {

/// For the ranks that are local to `host`, whose GroupRole::control communicators remain in use.
/// Errors (environment) and exceptions as for load_cuda_backend.
[[nodiscard]] Result<std::unique_ptr<Backend<Bfloat16>>> open_backend(RunThreads& run_threads,
                                                                      std::unique_ptr<World> host,
                                                                      const PlanFile& plan);

}  // namespace echelon::cuda
