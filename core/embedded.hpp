// Files compiled into the program (catalogs, calibrations). Written by cmake/EmbedFiles.cmake.
#pragma once

#include <span>
#include <string_view>

namespace echelon {

struct EmbeddedFile {
  std::string_view name;  ///< file name without its extension
  std::string_view content;
};

[[nodiscard]] std::span<const EmbeddedFile> embedded_models();    // core/models/*.json
[[nodiscard]] std::span<const EmbeddedFile> embedded_gpus();      // topologies/gpus/*.json
[[nodiscard]] std::span<const EmbeddedFile> embedded_clusters();  // topologies/clusters/*.json
[[nodiscard]] std::span<const EmbeddedFile>
embedded_calibrations();  // costmodel/calibrations/*.json
[[nodiscard]] std::span<const EmbeddedFile>
embedded_collective_tables();  // costmodel/collective_tables/*.csv

}  // namespace echelon
