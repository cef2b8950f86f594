// Reports on configurations of other frameworks: what was read, what cannot be written.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "interop/configs/export.hpp"
#include "planner/explain/one_change.hpp"
#include "report/terminal_style.hpp"

namespace echelon {

/// What was found, derived and assumed, and what must be given.
[[nodiscard]] std::string import_text(const ImportedConfig& imported, const TextStyle& style);
/// `candidate` where nothing is missing: its plan.
[[nodiscard]] std::string import_json(const ImportedConfig& imported, const PlanRequest* request,
                                      const Candidate* candidate);

/// "megatron-lm cannot express this plan: ..."
[[nodiscard]] std::string inexpressible_text(const ConfigFormat& format,
                                             const std::vector<std::string>& reasons);
[[nodiscard]] std::string reason_of(const Inexpressible& lost, const ConfigFormat& format);

/// What a configuration costs, what one change is worth, what the best plan gains.
[[nodiscard]] std::string advice_text(const PlanRequest& request, const Candidate& own,
                                      const std::vector<OneChange>& changes, const Candidate* best);

}  // namespace echelon
