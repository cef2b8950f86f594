// plan predict.
#include "cli/commands/command.hpp"
#include "cli/commands/plan_output.hpp"
#include "cli/flags/imported.hpp"
#include "cli/flags/request.hpp"
#include "core/plan/plan_file.hpp"
#include "planner/search/optimize.hpp"
#include "report/json/json.hpp"
#include "report/text/text.hpp"

namespace echelon::cli {

Result<CommandResult> predict_command(const CommandContext& context) {
  const PlanOutput plan_output(context.arguments);
  if (const Status ok = plan_output.check(context.json); !ok) return ok.error();
  const auto ask = [&]() -> Result<ResolvedRequest> {
    if (const auto from = context.arguments.value("from")) {
      const Result<ImportedRequest> imported =
          complete_import(*from, settings_of_flags(context.arguments));
      if (!imported) return imported.error();
      return *imported->resolved;
    }
    if (context.arguments.words.empty()) return resolve(context.settings);
    // A plan file is complete: environment and configuration files do not change it.
    const Result<PlanFile> file = read_plan_file(context.arguments.words.front());
    if (!file) return file.error();
    return resolve(*file, context.arguments.words.front(), settings_of_flags(context.arguments));
  };
  const Result<ResolvedRequest> resolved = ask();
  if (!resolved) return resolved.error();
  Result<Candidate> candidate = predict(resolved->request);
  if (!candidate) return of_request(context, candidate.error());

  CommandResult result;
  result.exit_code = candidate->fits ? kDone : kNo;
  if (context.json) {
    result.output = predict_json(resolved->request, *candidate, resolved->provenance);
  } else if (context.quiet) {
    result.output = headline(resolved->request, *candidate, "plan", context.style).substr(1);
  } else {
    result.output = predict_text(resolved->request, *candidate, context.style);
  }
  result.note(plan_output.write(resolved->request, *candidate, resolved->provenance,
                                !context.json && !context.quiet, result.output, context.style));
  return result;
}

}  // namespace echelon::cli
