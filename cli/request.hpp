// Settings understood: text becomes the values a planner works with.
#pragma once

#include <optional>
#include <vector>

#include "cli/settings.hpp"
#include "core/plan/plan_file.hpp"
#include "planner/space/request.hpp"
#include "report/plan_files.hpp"

namespace echelon::cli {

/// A request together with how its parts were named.
struct Asked {
  PlanRequest request;
  Provenance provenance;
  std::optional<Seconds> budget{};  ///< after which the search is stopped
};

/// Errors name the setting and where it came from. What was not set is filled in by the defaults of
/// the contract and told in request.assumptions.
[[nodiscard]] Result<Asked> understand(const Settings& settings);
/// The request of the plan file at `path`, with single values changed by `changes` (flags). Degrees
/// that follow from a changed one are worked out again. Refused when the cluster's description
/// changed since it was written, unless `changes` name a cluster; rates that changed are told in
/// request.assumptions.
[[nodiscard]] Result<Asked> understand(const PlanFile& file, const std::string& path,
                                       const Settings& changes);

/// Cluster and rates, for verbs that need no model. `gpus` ≤ 0 takes the description's own size.
struct Machine {
  ClusterTopology cluster;
  std::string cluster_name;  ///< as given
  Framework stack;
  Calibration calibration;
  std::string calibration_path;
};
[[nodiscard]] Result<Machine> machine_of(const Settings& settings, std::int64_t gpus,
                                         std::vector<std::string>& assumptions);

/// "16,16" as whole numbers of at least `least`.
[[nodiscard]] Result<std::vector<int>> parse_list(const Setting& setting, int least);
/// "true", "false", "yes", "no", "1", "0".
[[nodiscard]] Result<bool> parse_switch(const Setting& setting);
/// A file the user named must be there: its absence is wrong input, not a broken machine.
[[nodiscard]] Status check_exists(const std::string& path, std::string_view where,
                                  std::string_view what);
/// An error of a parser, told at the place the value came from.
[[nodiscard]] Error at(const Setting& setting, Error error);

inline constexpr const char* kDefaultCluster = "dgx-h100";

}  // namespace echelon::cli
