// The lists of plans in the answer of a search.
#pragma once

#include <string>

#include "planner/search/optimize.hpp"
#include "report/terminal_style.hpp"

namespace echelon {

/// The best plan of each family, what each trades against the first, and how many plans of its
/// family are nearly as good.
[[nodiscard]] std::string plan_list_text(const SearchResult& choice, const TextStyle& style);
/// The best plan on each number of GPUs that was searched; "" where it was one.
[[nodiscard]] std::string gpu_counts_text(const SearchResult& choice, const TextStyle& style);
/// The best plan with each recipe of states that was searched; "" where it was one.
[[nodiscard]] std::string recipes_text(const SearchResult& choice, const TextStyle& style);
/// Plans of the Pareto front of time and memory.
[[nodiscard]] std::string pareto_text(const SearchOutcome& report, const TextStyle& style);
/// The front over several numbers of GPUs, without plans that take more than twice the time of
/// another on as many.
[[nodiscard]] std::string front_over_counts_text(const SearchResult& choice,
                                                 const TextStyle& style);

/// Whether a plan is too close to the winner to call; never where memory decides.
[[nodiscard]] bool tied_with_best(const SearchResult& choice, const Candidate& other);
/// What a plan leaves of a GPU's memory, or of --max-memory: "14.2 GiB".
[[nodiscard]] std::string spare_of(const PlanRequest& request, const Candidate& candidate);

}  // namespace echelon
