// Settings resolved: text becomes the values that the planner works with.
#pragma once

#include <optional>
#include <vector>

#include "cli/flags/hardware_flags.hpp"
#include "cli/flags/settings.hpp"
#include "cli/flags/values.hpp"
#include "core/model/model_io.hpp"
#include "core/plan/plan_file.hpp"
#include "planner/space/request.hpp"
#include "report/plan_files.hpp"

namespace echelon::cli {

/// A request together with how its parts were named.
struct ResolvedRequest {
  PlanRequest request;
  Provenance provenance;
  std::optional<Seconds> time_limit{};  ///< after which the search is stopped
};

/// The model of a name or a file.
[[nodiscard]] Result<ModelReading> read_named_model(const Setting& named);

/// Errors name the setting and where it came from. Defaults fill in what was not set
/// and are stated in request.assumptions. `model` takes the place of the one that the settings
/// name.
[[nodiscard]] Result<ResolvedRequest> resolve(const Settings& settings,
                                              const ModelSpec* model = nullptr);
/// The request of a search: as above, but `--precision FORMAT:any` stands for all of the
/// framework's recipes of states.
[[nodiscard]] Result<ResolvedRequest> resolve_search(const Settings& settings);
/// The request of the plan file at `path`, with single values changed by `changes` (flags). Degrees
/// that follow from a changed one are derived again. Refused when the cluster's description
/// changed since it was written, unless `changes` name a cluster; rates that changed are stated in
/// request.assumptions.
[[nodiscard]] Result<ResolvedRequest> resolve(const PlanFile& file, const std::string& path,
                                              const Settings& changes);

}  // namespace echelon::cli
