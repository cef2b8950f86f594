#include "cli/commands/run_replan.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "core/base/expects.hpp"
#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"
#include "planner/search/optimize.hpp"
#include "report/format.hpp"
#include "report/text/text.hpp"

namespace echelon::cli {
Result<std::optional<int>> ranks_to_replan(const CommandContext& context,
                                           const std::optional<Launch>& launch, int planned) {
  const auto given = context.arguments.value("gpus");
  if (!context.settings.has("replan")) {
    if (!given) return std::optional<int>();
    return input_error("--gpus", in_quotes(*given), "--replan with it",
                       "a plan has its own number of ranks; with --replan --checkpoint-dir DIR the "
                       "best plan for another number is run");
  }
  if (!context.settings.has("checkpoint-dir")) {
    return input_error("--replan", "no --checkpoint-dir",
                       "--checkpoint-dir DIR, where the new plan is written",
                       "with --resume auto the run goes on from the newest checkpoint there");
  }
  int ranks = launch ? launch->size : planned;
  if (given) {
    const Result<int> number = parse_int(*given, "--gpus", 1);
    if (!number) return number.error();
    ranks = *number;
  }
  return ranks == planned ? std::optional<int>() : std::optional(ranks);
}

Result<Candidate> replan(PlanRequest& request) {
  request.constraints = {};
  request.top = 1;
  Result<SearchResult> found = optimize(request);
  if (!found) {
    Error error = found.error();
    error.where = "--replan";
    error.found += fmt::format(" of {}", counted(static_cast<int>(request.cluster.gpus()), "rank"));
    return error;
  }
  const SearchOutcome& outcome = found->report;
  if (const Candidate* winner = outcome.winner()) return *winner;
  EXPECTS(!outcome.nearest_infeasible.empty(), "a legal plan fits or lacks memory");
  return outcome.nearest_infeasible.front().candidate;
}

std::string replanned_path(const std::string& checkpoint_dir, int ranks) {
  const std::string name = fmt::format("plan-{}-rank{}.json", ranks, ranks == 1 ? "" : "s");
  return (std::filesystem::path(checkpoint_dir) / name).string();
}

std::string replanned_note(const std::string& path, const PlanFile& before, const PlanFile& now,
                           const std::string& written) {
  return fmt::format(
      "{} is for {}, and there {} {}: goes on with the best plan for {}, {}, with {} per step "
      "predicted ({} in {}); it is in {}",
      path, counted(before.gpus, "rank"), now.gpus == 1 ? "is" : "are", now.gpus, now.gpus,
      described(now.plan, TextStyle{}), duration(now.predicted.time.total()),
      duration(before.predicted.time.total()), path, written);
}

}  // namespace echelon::cli
