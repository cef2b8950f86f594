// One plan at a glance: the main figures, each with its meaning.
#pragma once

#include <string>
#include <vector>

#include "planner/search/search.hpp"
#include "report/terminal_style.hpp"

namespace echelon {

/// One figure: "MFU", "47.5 %", "470 of 989 TFLOP/s per GPU", and its definition.
struct StatTile {
  std::string name;
  std::string value;
  std::string detail;
  std::string formula;
  Paint paint = Paint::plain;  ///< good, warning, bad where the figure is one of these
};

/// Step, tokens per second, MFU, bubble, memory, and days with money. `best` is the plan to compare
/// with, on the same question; may be null.
[[nodiscard]] std::vector<StatTile> stat_tiles_of(const PlanRequest& request,
                                                  const Candidate& candidate,
                                                  const Candidate* best);

/// Whether it fits, its cost relative to `best`, its bottleneck and the evidence of the prediction,
/// each as a sentence.
struct PlanSummary {
  std::string fits;
  bool good = false;    ///< it fits
  std::string against;  ///< "" without a best plan
  std::string limit;
  std::string evidence;
};
[[nodiscard]] PlanSummary summary_of(const PlanRequest& request, const Candidate& candidate,
                                     const Candidate* best);

}  // namespace echelon
