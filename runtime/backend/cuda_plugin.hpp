// The CUDA backend is a library that is loaded on demand, so that plan-run starts where no CUDA
// library exists.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/result.hpp"
#include "core/plan/plan_file.hpp"
#include "core/run/measurements.hpp"
#include "runtime/backend/processor.hpp"

namespace echelon {

/// Functions of the plugin; `identity` returns the build it belongs to.
inline constexpr const char* kCudaIdentity = "echelon_cuda_identity";
inline constexpr const char* kCudaOpen = "echelon_cuda_open";
inline constexpr const char* kCudaMeasure = "echelon_cuda_measure";

using CudaIdentity = const char* (*)();
using CudaOpen = void (*)(RunThreads& run_threads, std::unique_ptr<World>& host,
                          const PlanFile& plan, Result<std::unique_ptr<Backend<Bfloat16>>>& out);
using LogLine = std::function<void(const std::string&)>;
using CudaMeasure = void (*)(const LogLine& log, Result<Measurements>& out);

/// Identity of this build; plugin and program must have the same.
[[nodiscard]] std::string build_identity();

/// Opens the backend for the ranks that are local to `host`, whose GroupRole::control communicators
/// remain in use. Errors (environment): no plugin (with the places searched), a missing CUDA
/// library, a plugin of another build, no GPU or driver, fewer GPUs than ranks. Throws RunFailure.
/// Either way the run is stopped before `host` is destroyed, which reports the reason to other
/// processes.
[[nodiscard]] Result<std::unique_ptr<Backend<Bfloat16>>> load_cuda_backend(
    RunThreads& run_threads, std::unique_ptr<World> host, const PlanFile& plan);

/// Times the GPUs of this computer (runtime/cuda/measure/measure.hpp). Errors and throws as above.
[[nodiscard]] Result<Measurements> measure_gpus(const LogLine& log);

}  // namespace echelon
