// The embedded descriptions, by name and alias.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/embedded.hpp"
#include "core/base/result.hpp"
#include "topologies/description/description.hpp"

namespace echelon {

/// Names of the GPU catalog, sorted.
[[nodiscard]] std::vector<std::string> gpu_catalog();

struct GpuSummary {
  std::string name;  ///< the name used for "gpu" in a cluster file
  std::vector<std::string> aliases;
  GpuSpec spec;
};
/// The GPU catalog, sorted by name.
[[nodiscard]] std::vector<GpuSummary> list_gpus();

/// The embedded file whose file name, "name" or one of "aliases" or "driver_names" equals `name`,
/// ignoring case, blanks, dashes and underscores.
[[nodiscard]] std::optional<EmbeddedFile> find_embedded_cluster(std::string_view name);
[[nodiscard]] std::optional<EmbeddedFile> find_embedded_gpu(std::string_view name);

/// A GPU of the catalog; an unknown name is an error at `where` that names the nearest and lists
/// all known ones.
[[nodiscard]] Result<GpuDescription> load_gpu(std::string_view name, std::string_view where);

}  // namespace echelon
