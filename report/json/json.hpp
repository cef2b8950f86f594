// Reports for programs: one JSON document each, keys as in the command line's contract.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/search/optimize.hpp"
#include "report/plan_files.hpp"
#include "report/text/text.hpp"

namespace echelon {

/// The only part of a report that differs between two runs.
struct Timing {
  Seconds elapsed;
  std::int64_t configurations = 0;
};

[[nodiscard]] std::string search_json(const SearchResult& choice, const Provenance& provenance,
                                      const Timing& timing);
[[nodiscard]] std::string predict_json(const PlanRequest& request, const Candidate& candidate,
                                       const Provenance& provenance);
/// `{ "a": candidate, "b": candidate, "delta": ... }`; deltas are B − A.
[[nodiscard]] std::string compare_json(const PlanWithPrediction& a, const PlanWithPrediction& b);

}  // namespace echelon
