// plan search.
#include <fmt/format.h>

#include "cli/commands/command.hpp"
#include "cli/commands/command_line.hpp"
#include "cli/commands/plan_output.hpp"
#include "cli/flags/plan_settings.hpp"
#include "cli/flags/request.hpp"
#include "cli/flags/training_flags.hpp"
#include "cli/system/terminal.hpp"
#include "planner/explain/sensitivity.hpp"
#include "planner/search/optimize.hpp"
#include "report/json/json.hpp"
#include "report/text/text.hpp"

namespace echelon::cli {

namespace {

/// The sensitivities, a dozen more searches, if the space is small enough to make them quick. The
/// limit is a count, not a time: the same input gives the same output.
std::vector<Sensitivity> cheap_sensitivities(const SearchResult& choice) {
  constexpr std::int64_t kFewPoints = 100'000;
  const Candidate* winner = choice.report.winner();
  if (winner == nullptr || choice.report.counts.points > kFewPoints) return {};
  return sensitivities(choice.request, *winner);
}

/// `recipe`: the chosen one, which is what other commands take.
TypedSearch typed_search(const Arguments& arguments, const std::string& recipe) {
  Settings flags = settings_of_flags(arguments);
  flags.erase("output");
  const std::string_view rest = arguments.has("no-config") ? " --no-config" : "";
  const std::string search = command_of("search", flags);
  if (format_of_any(flags)) flags.set("precision", {recipe, "--precision"});
  return {fmt::format("{}{}", search, rest),
          fmt::format("{}{}", command_of("explain", flags), rest),
          arguments.value("output").value_or("")};
}

}  // namespace

Result<CommandResult> search_command(const CommandContext& context) {
  const PlanOutput plan_output(context.arguments);
  if (const Status ok = plan_output.check(context.json); !ok) return ok.error();
  const Result<ResolvedRequest> resolved = resolve_search(context.settings);
  if (!resolved) return resolved.error();
  ProgressLine line("searching", context.quiet);
  const Result<SearchResult> choice = optimize(resolved->request, [&](double share) {
    line.show(share);
    return !resolved->time_limit || Seconds{line.seconds()} < *resolved->time_limit;
  });
  if (!choice) return naming_origins(choice.error(), context.settings);

  const PlanRequest& request = choice->request;  // on the chosen number of GPUs
  const SearchOutcome& report = choice->report;
  const Candidate* winner = report.winner();
  CommandResult result;
  result.exit_code = report.fitting_winner() != nullptr ? kDone : kNo;
  if (context.json) {
    const Timing timing{Seconds{line.seconds()}, report.counts.priced + report.counts.too_large};
    result.output = search_json(*choice, resolved->provenance, timing);
  } else if (context.quiet) {
    result.output = winner != nullptr
                        ? headline(request, *winner, "best plan", context.style).substr(1)
                        : nearest_infeasible_text(request, report, context.style);
  } else {
    const std::vector<Sensitivity> changes = cheap_sensitivities(*choice);
    const std::vector<Sensitivity> even =
        winner != nullptr ? even_batches(request, *winner) : std::vector<Sensitivity>();
    result.output =
        search_text(*choice, most_valuable(changes), even,
                    typed_search(context.arguments, request.job.precision.name), context.style);
  }
  if (winner != nullptr) {
    result.note(plan_output.write(request, *winner, resolved->provenance,
                                  !context.json && !context.quiet, result.output, context.style));
  }
  return result;
}

}  // namespace echelon::cli
