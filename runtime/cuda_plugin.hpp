// The CUDA backend is a library of its own that is loaded when a run asks for it, so that plan-run
// starts where no CUDA library exists.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/result.hpp"
#include "core/plan/plan_file.hpp"
#include "core/run/measurements.hpp"
#include "runtime/processor.hpp"

namespace echelon {

/// What the library is called, beside plan-run or in the folder that ECHELON_BACKEND_PATH names.
inline constexpr const char* kCudaPlugin = "echelon_cuda.so";
/// Its functions; `identity` says of which build it is.
inline constexpr const char* kCudaIdentity = "echelon_cuda_identity";
inline constexpr const char* kCudaOpen = "echelon_cuda_open";
inline constexpr const char* kCudaMeasure = "echelon_cuda_measure";

using CudaIdentity = const char* (*)();
using CudaOpen = void (*)(Crew& crew, std::unique_ptr<World>& host, const PlanFile& plan,
                          Result<std::unique_ptr<Backend<Bfloat16>>>& out);
using Telling = std::function<void(const std::string&)>;
using CudaMeasure = void (*)(const Telling& tell, Result<Measurements>& out);

/// What this build calls itself; plugin and program must be of one.
[[nodiscard]] std::string build_identity();

/// Opens the backend for the ranks that are local to `host`, whose Line::host it keeps. Errors
/// (environment): no plugin and where it was looked for, a CUDA library it needs is missing, it is
/// of another build, no GPU or driver, fewer GPUs than ranks. Throws RunFailure. Either
/// ends the crew before `host` goes away, which tells other processes why.
[[nodiscard]] Result<std::unique_ptr<Backend<Bfloat16>>> load_cuda_backend(
    Crew& crew, std::unique_ptr<World> host, const PlanFile& plan);

/// Times the GPUs of this computer (runtime/cuda/measure.hpp). Errors and throws as above.
[[nodiscard]] Result<Measurements> measure_gpus(const Telling& tell);

}  // namespace echelon
