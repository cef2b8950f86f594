// The descriptions compiled into the program, by name and alias.
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

/// The embedded text whose file name, "name" or "aliases" are `name`; case, blanks, dashes and
/// underscores are ignored.
[[nodiscard]] std::optional<EmbeddedFile> find_embedded_cluster(std::string_view name);
[[nodiscard]] std::optional<EmbeddedFile> find_embedded_gpu(std::string_view name);

/// A GPU of the catalog; an unknown name is an error that lists the nearest and all known ones,
/// reported at `where`.
[[nodiscard]] Result<GpuDescription> load_gpu(std::string_view name, std::string_view where);

}  // namespace echelon
