#include "runtime/backend/cuda_plugin.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "core/version.hpp"

namespace echelon {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> places_of_plugin() {
  std::vector<fs::path> places;
  if (const char* given = std::getenv("ECHELON_BACKEND_PATH"); given != nullptr)
    places.emplace_back(given);
  std::error_code none;
  const fs::path program = fs::read_symlink("/proc/self/exe", none);
  if (!none) {
    places.push_back(program.parent_path());
    places.push_back(program.parent_path().parent_path() / "lib" / "echelon");
  }
  return places;
}

constexpr const char* kHint = "--backend cpu needs no GPU";

/// Stays loaded: its objects live as long as the run.
Result<void*> load_plugin() {
  std::string looked;
  for (const fs::path& place : places_of_plugin()) {
    const fs::path path = place / kCudaPlugin;
    std::error_code none;
    if (!fs::exists(path, none)) {
      looked += (looked.empty() ? "" : ", ") + place.string();
      continue;
    }
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    return environment_error("--backend cuda", dlerror(), kHint);  // names the library it lacks
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
