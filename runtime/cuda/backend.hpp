// The CUDA backend: what the plugin opens.
#pragma once

#include <memory>

#include "core/base/result.hpp"
#include "core/plan/plan_file.hpp"
#include "runtime/processor.hpp"

namespace echelon::cuda {

/// For the ranks that are local to `host`, whose Line::host stays. Errors (environment) and throws
/// as load_cuda_backend does.
[[nodiscard]] Result<std::unique_ptr<Backend<Bfloat16>>> open_backend(Crew& crew,
                                                                      std::unique_ptr<World> host,
                                                                      const PlanFile& plan);

}  // namespace echelon::cuda
