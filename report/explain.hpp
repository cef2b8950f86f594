// Explanations of a plan, as text and as JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/explain/chain.hpp"
#include "planner/explain/why_not.hpp"
#include "report/plan_files.hpp"
#include "report/terminal_style.hpp"

namespace echelon {

/// The configuration of a why-not question, and the answer.
struct WhyNotAnswer {
  std::string asked;  ///< as typed: "tp=4,pp=2"
  WhyNot answer;
};

/// The chain from one GPU to the winner, its layout, and the gain of each change.
[[nodiscard]] std::string explain_text(const Explanation& explanation, const TextStyle& style);
/// The winner and the most valuable change; the nearest infeasible plans if nothing fits.
[[nodiscard]] std::string explain_briefly(const Explanation& explanation, const TextStyle& style);
/// The winner's first lines and the reasons against the other plan.
[[nodiscard]] std::string why_not_text(const Explanation& explanation, const WhyNotAnswer& asked,
                                       const TextStyle& style);
/// Only the answer.
[[nodiscard]] std::string verdict_text(const Explanation& explanation, const WhyNotAnswer& asked,
                                       const TextStyle& style);
[[nodiscard]] std::string explain_json(const Explanation& explanation,
                                       const std::optional<WhyNotAnswer>& asked,
                                       const Provenance& provenance);

/// "Not finished within the time limit: the chain, the changes."; "" where nothing is.
[[nodiscard]] std::string unfinished_text(const std::vector<std::string_view>& parts,
                                          const TextStyle& style);
/// "exposed communication takes 12.0 % of the step".
[[nodiscard]] std::string words_of(const Limit& limit);
/// "20 % less network bandwidth per node".
[[nodiscard]] std::string described(const Sensitivity& sensitivity);
/// "FP8 GEMMs would save 31.0 % of the GPU time per token (3.4 s a step)".
[[nodiscard]] std::string buys_most_sentence(const Sensitivity& best, const PlanRequest& request);
/// "1,024 sequences are not a multiple of the 90 nodes: 256 GPUs would save ...".
[[nodiscard]] std::string even_batches_sentence(const std::vector<Sensitivity>& all,
                                                const PlanRequest& request);
/// The table of sensitivities with that sentence for all and for each kind of change, or "" when
/// there are none.
[[nodiscard]] std::string sensitivities_text(const PlanRequest& request, const Candidate& winner,
                                             const std::vector<Sensitivity>& all,
                                             const TextStyle& style);

}  // namespace echelon
