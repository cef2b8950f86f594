// Files compiled into the program (catalogs, calibrations). Written by cmake/EmbedFiles.cmake.
#pragma once

#include <span>
#include <string_view>

namespace echelon {

struct EmbeddedFile {
  std::string_view name;  ///< file name without its extension
  std::string_view content;
};

[[nodiscard]] std::span<const EmbeddedFile> embedded_models();  // core/model/catalog/*.json
[[nodiscard]] std::span<const EmbeddedFile> embedded_gpus();    // topologies/catalog/gpus/*.json
[[nodiscard]] std::span<const EmbeddedFile>
embedded_clusters();  // topologies/catalog/clusters/*.json
[[nodiscard]] std::span<const EmbeddedFile>
embedded_calibrations();  // costmodel/catalog/calibrations/*.json
[[nodiscard]] std::span<const EmbeddedFile>
embedded_collective_tables();  // costmodel/catalog/collectives/*.csv
[[nodiscard]] std::span<const EmbeddedFile>
embedded_run_machines();  // evaluation/catalog/run_machines.json

}  // namespace echelon
