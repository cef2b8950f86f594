// What the views show: values of the planner, shared between them and never changed.
#pragma once

#include <memory>
#include <optional>

#include "cli/request.hpp"
#include "planner/search.hpp"

namespace echelon::gui {

/// One plan, and what it was asked for.
struct ShownPlan {
  cli::Asked asked;
  Candidate candidate;
};

/// The outcome of a search.
struct ShownSpace {
  cli::Asked asked;
  SearchOutcome report;
};

/// Null: nothing to show yet.
using PlanShown = std::shared_ptr<const ShownPlan>;
using SpaceShown = std::shared_ptr<const ShownSpace>;

}  // namespace echelon::gui
