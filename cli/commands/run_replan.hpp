// plan run --replan: the best plan for the ranks that are there, instead of the plan's own number.
#pragma once

#include <optional>
#include <string>

#include "cli/commands/command.hpp"
#include "cli/flags/request.hpp"
#include "core/run/launch.hpp"
#include "planner/search/search_outcome.hpp"

namespace echelon::cli {

/// The number of ranks to plan for: --gpus, or the processes that a launcher started; nothing
/// without --replan, where neither is given, or where it is the plan's own (`planned`). Errors:
/// --replan without --checkpoint-dir, --gpus without --replan.
[[nodiscard]] Result<std::optional<int>> ranks_to_replan(const CommandContext& context,
                                                         const std::optional<Launch>& launch,
                                                         int planned);

/// The best plan for request.cluster, with nothing pinned. The search is exact and has no time
/// limit, so every process of a run finds the same one. Where none fits, the one that lacks least
/// memory. Error: no plan is legal.
[[nodiscard]] Result<Candidate> replan(PlanRequest& request);

/// The file of that plan next to the checkpoints: DIR/plan-2-ranks.json.
[[nodiscard]] std::string replanned_path(const std::string& checkpoint_dir, int ranks);

/// "plan.json is for 4 ranks, and there are 2: goes on with the best plan for 2, tp 1 · pp 2 ...,
/// with 21 ms per step predicted (12 ms in plan.json); it is in steps/plan-2-ranks.json".
[[nodiscard]] std::string replanned_note(const std::string& path, const PlanFile& before,
                                         const PlanFile& now, const std::string& written);

}  // namespace echelon::cli
