// plan import of configurations.
#include "cli/commands/import_configs.hpp"

#include "cli/commands/plan_output.hpp"
#include "cli/flags/imported.hpp"
#include "planner/search/optimize.hpp"
#include "report/interop.hpp"
#include "report/text/text.hpp"

namespace echelon::cli {

Result<CommandResult> import_configs_command(const CommandContext& context) {
  const PlanOutput plan_output(context.arguments);
  if (const Status ok = plan_output.check(context.json); !ok) return ok.error();
  const Result<ImportedRequest> imported =
      import_request(context.arguments.words, settings_of_flags(context.arguments));
  if (!imported) return imported.error();
  CommandResult result;
  if (!imported->resolved) {
    result.exit_code = kWrongInput;
    result.output = context.json ? import_json(imported->config, nullptr, nullptr)
                                 : import_text(imported->config, context.style);
    return result;
  }
  const ResolvedRequest& resolved = *imported->resolved;
  const Result<Candidate> candidate = predict(resolved.request);
  if (!candidate) return candidate.error();
  if (context.json) {
    result.output = import_json(imported->config, &resolved.request, &*candidate);
  } else if (!context.quiet) {
    result.output = import_text(imported->config, context.style) + "\n" +
                    headline(resolved.request, *candidate, "plan", context.style).substr(1);
  }
  result.note(plan_output.write(resolved.request, *candidate, resolved.provenance,
                                !context.json && !context.quiet, result.output, context.style));
  return result;
}

}  // namespace echelon::cli
