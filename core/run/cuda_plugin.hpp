// The file of the CUDA backend: where it lies, and which library it lacks.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

inline constexpr const char* kCudaPlugin = "echelon_cuda.so";

/// Folders that may hold it, in the order in which they are tried: the one that
/// ECHELON_BACKEND_PATH names (`given`, nullptr: none), that of the running program, and
/// ../lib/echelon from there.
[[nodiscard]] std::vector<std::filesystem::path> places_of_cuda_plugin(const char* given);

/// A library that the plugin was linked with and the loader does not find.
struct MissingLibrary {
  std::string name;    ///< "libnccl.so.2"
  std::string remedy;  ///< "install NCCL 2, or …"
};
/// By the message of dlerror(); nothing: loading failed for another reason.
[[nodiscard]] std::optional<MissingLibrary> missing_library(std::string_view loader_said);

/// The file of cuDNN of a major version that the loader is asked for: in the folder that
/// ECHELON_CUDNN names (`given`, nullptr: none; a word is no folder), else where the loader looks.
[[nodiscard]] inline std::string cudnn_library(const char* given, int major) {
  const std::string library = "libcudnn.so." + std::to_string(major);
  return given != nullptr && *given == '/' ? std::string(given) + "/" + library : library;
}

}  // namespace echelon
