#include "runtime/backend/cuda_plugin.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "core/run/cuda_plugin.hpp"
#include "core/version.hpp"

namespace echelon {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHint = "--backend cpu needs no GPU";

/// Stays loaded: its objects live as long as the run.
Result<void*> load_plugin() {
  std::string looked;
  for (const fs::path& place : places_of_cuda_plugin(std::getenv("ECHELON_BACKEND_PATH"))) {
    const fs::path path = place / kCudaPlugin;
    std::error_code none;
    if (!fs::exists(path, none)) {
      looked += (looked.empty() ? "" : ", ") + place.string();
      continue;
    }
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    const std::string said = dlerror();
    const std::optional<MissingLibrary> lacks = missing_library(said);
    if (!lacks) return environment_error("--backend cuda", said, kHint);
    return environment_error("--backend cuda",
                             path.string() + " needs " + lacks->name + ", which is not found",
                             lacks->remedy + "; " + kHint);
  }
  return environment_error("--backend cuda",
                           std::string("no ") + kCudaPlugin + " in " + looked +
                               ": this build was made without a CUDA toolkit",
                           kHint);
}

/// A function of the plugin, which is of the same build as we are.
template <class Function>
Result<Function> of_plugin(const char* name) {
  const Result<void*> library = load_plugin();
  if (!library) return library.error();
  const auto identity = reinterpret_cast<CudaIdentity>(dlsym(*library, kCudaIdentity));
  const auto function = reinterpret_cast<Function>(dlsym(*library, name));
  const std::string found = identity == nullptr ? "no identity" : identity();
  if (function == nullptr || found != build_identity()) {
    return environment_error("--backend cuda",
                             std::string(kCudaPlugin) + " of another build: found " + found +
                                 ", expected " + build_identity(),
                             "build both again");
  }
  return function;
}

}  // namespace

std::string build_identity() { return std::string(version()) + " " + std::string(commit()); }

Result<std::unique_ptr<Backend<Bfloat16>>> load_cuda_backend(RunThreads& run_threads,
                                                             std::unique_ptr<World> host,
                                                             const PlanFile& plan) {
  const Result<CudaOpen> open = of_plugin<CudaOpen>(kCudaOpen);
  if (!open) {
    run_threads.stop(RunFailure(open.error()));
    return open.error();
  }
  Result<std::unique_ptr<Backend<Bfloat16>>> out =
      environment_error("--backend cuda", "not opened");
  (*open)(run_threads, host, plan, out);
  return out;
}

Result<Measurements> measure_gpus(const LogLine& log) {
  const Result<CudaMeasure> measure = of_plugin<CudaMeasure>(kCudaMeasure);
  if (!measure) return measure.error();
  Result<Measurements> out = environment_error("--backend cuda", "not measured");
  (*measure)(log, out);
  return out;
}

}  // namespace echelon
