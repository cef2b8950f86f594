// Reports for people. Each function is pure: values in, text out (report/json/json.hpp: the same as
// JSON).
#pragma once

#include <string>
#include <string_view>

#include "core/plan/plan_file.hpp"
#include "planner/explain/sensitivity.hpp"
#include "planner/search/optimize.hpp"
#include "report/terminal_style.hpp"

namespace echelon {

/// A search as it was asked for, for commands that go on from it.
struct TypedSearch {
  std::string command;    ///< "plan --model 7b --gpus 64", without the file its plan goes to
  std::string explain;    ///< "plan explain --model 7b --gpus 64": the same request
  std::string plan_file;  ///< where the plan goes; "" where it is not kept
};

/// The answer of a search, read from the top: what to use, what it costs, what else there is, what
/// was assumed, what to type next. `buys_most` is the change that would help most, where it was
/// looked for; `even_batches` what would help an uneven batch.
[[nodiscard]] std::string search_text(const SearchResult& choice, const Sensitivity* buys_most,
                                      const std::vector<Sensitivity>& even_batches,
                                      const TypedSearch& typed, const TextStyle& style);
/// The change that makes a plan fit: "128 GPUs instead of 64 (dp 16)".
[[nodiscard]] std::string fix_text(const Fix& fix);
/// All that make it fit, each alone: "128 GPUs instead of 64 (dp 16), or --precision
/// bf16:precision-aware".
[[nodiscard]] std::string fixes_text(const NearestInfeasible& miss);
/// The plans that come closest to fitting, and what would make them fit.
[[nodiscard]] std::string nearest_misses(const SearchOutcome& report, const TextStyle& style);
/// Why there is no plan, without the rest: the nearest misses.
[[nodiscard]] std::string nearest_infeasible_text(const PlanRequest& request,
                                                  const SearchOutcome& report,
                                                  const TextStyle& style);
/// The outcomes of the combinations searched, and whether the winner is proved.
[[nodiscard]] std::string proof_of(const SearchOutcome& report);
/// Which combinations had one split of their layers priced alone, and what that may cost; "" when
/// none.
[[nodiscard]] std::string open_splits_of(const SearchOutcome& report);
/// One configuration, priced.
[[nodiscard]] std::string predict_text(const PlanRequest& request, const Candidate& candidate,
                                       const TextStyle& style);
/// The first lines of either: plan, time, memory. Without a `title` the plan is left out.
[[nodiscard]] std::string headline(const PlanRequest& request, const Candidate& candidate,
                                   std::string_view title, const TextStyle& style);
/// What the framework asks for and warns of with this plan, a line each; "" for nothing
/// (core/framework/framework.hpp, remarks).
[[nodiscard]] std::string remarks_text(const PlanRequest& request, const Candidate& candidate,
                                       const TextStyle& style);

// Parts of these reports.
[[nodiscard]] std::string job_text(const PlanRequest& request, const TextStyle& style);
[[nodiscard]] std::string memory_text(const Prediction& costs, const TextStyle& style);
[[nodiscard]] std::string time_text(const Prediction& costs, const TextStyle& style);
[[nodiscard]] std::string assumptions_text(const PlanRequest& request, const TextStyle& style);

/// One side of a comparison.
struct PlanWithPrediction {
  std::string name;  ///< of its file
  PlanFile plan;     ///< priced by this version
  Score score;       ///< … and weighed
  bool simulated = false;
  std::string note{};  ///< what a reader must know before comparing; may be empty
};
[[nodiscard]] std::string compare_text(const PlanWithPrediction& a, const PlanWithPrediction& b,
                                       const TextStyle& style);

/// `word` as one word of a POSIX shell.
[[nodiscard]] std::string shell_quoted(std::string_view word);

}  // namespace echelon
