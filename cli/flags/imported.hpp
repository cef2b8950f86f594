// Configurations of other frameworks as requests.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/flags/request.hpp"
#include "interop/configs/import.hpp"

namespace echelon::cli {

/// A configuration that was read, and the request that it makes together with the flags; no
/// request where something must be given first.
struct ImportedRequest {
  ImportedConfig config;
  std::optional<ResolvedRequest> resolved{};
};

/// Flags take the place of what the files say; degrees that follow from a changed one are derived
/// again.
[[nodiscard]] Result<ImportedRequest> import_request(const std::vector<std::string>& files,
                                                     const Settings& flags);
/// The same for commands that need the request: an error that lists the flags to give.
[[nodiscard]] Result<ImportedRequest> complete_import(const std::string& file,
                                                      const Settings& flags);

}  // namespace echelon::cli
