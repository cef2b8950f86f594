// Results of the planner as the views show them: immutable and shared.
#pragma once

#include <memory>

#include "cli/flags/request.hpp"
#include "planner/search/search_outcome.hpp"

namespace echelon::gui {

/// One priced plan and the request it was priced for.
struct PlanResult {
  cli::ResolvedRequest resolved;
  Candidate candidate;
};

/// The outcome of a search and its request.
struct SpaceResult {
  cli::ResolvedRequest resolved;
  SearchOutcome report;
};

/// Null: no result yet.
using PlanResultPtr = std::shared_ptr<const PlanResult>;
using SpaceResultPtr = std::shared_ptr<const SpaceResult>;

}  // namespace echelon::gui
