#include "core/run/cuda_plugin.hpp"

#include <fmt/format.h>

#include <system_error>

namespace echelon {
namespace {

namespace fs = std::filesystem;

/// Where NVIDIA's wheels put a library, below Python's site-packages/nvidia. Source: RUNPATH of
/// libcudnn_graph.so.9 of the wheel nvidia-cudnn-cu13 9.19, which names them.
std::string remedy_for(std::string_view library) {
  const auto install = [](std::string_view what, std::string_view wheel) {
    return fmt::format(
        "install {}, or add the folder of a Python wheel that has it, site-packages/nvidia/{}/lib, "
        "to LD_LIBRARY_PATH",
        what, wheel);
  };
  if (library.starts_with("libnccl.so.")) return install("NCCL 2", "nccl");
  constexpr std::string_view kProducts = "libcublasLt.so.";
  if (library.starts_with(kProducts)) {
    const std::string_view cuda = library.substr(kProducts.size());
    return install(fmt::format("cuBLAS of CUDA {}", cuda),
                   cuda == "12" ? "cublas" : fmt::format("cu{}", cuda));
  }
  return fmt::format("install {}", library);
}

}  // namespace

std::vector<fs::path> places_of_cuda_plugin(const char* given) {
  std::vector<fs::path> places;
  if (given != nullptr) places.emplace_back(given);
  std::error_code none;
  const fs::path program = fs::read_symlink("/proc/self/exe", none);
  if (!none) {
    places.push_back(program.parent_path());
    places.push_back(program.parent_path().parent_path() / "lib/echelon");
  }
  return places;
}

std::optional<MissingLibrary> missing_library(std::string_view loader_said) {
  const std::size_t at = loader_said.find(": cannot open shared object file");
  if (at == std::string_view::npos) return std::nullopt;
  const std::string name(loader_said.substr(0, at));
  return MissingLibrary{name, remedy_for(name)};
}

}  // namespace echelon
