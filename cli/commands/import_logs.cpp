// plan import of training logs.
#include "cli/commands/import_logs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cli/commands/log_facts.hpp"
#include "cli/flags/values.hpp"
#include "report/format.hpp"
#include "report/imports.hpp"

namespace echelon::cli {

namespace {

/// What the cost model makes of the run.
void price(LogImport& import) {
  const Result<MeasuredRun> row = measured_run_of(import.log);
  if (!row) return;
  auto mapped = RunMapper().map(*row);
  if (auto* run = std::get_if<MappedRun>(&mapped)) {
    import.run = std::move(*run);
  } else {
    import.not_priced = std::get<SkippedRun>(mapped).reason;
  }
}

/// Logs of several folders may have one name, and rows of a table have ids of their own: train,
/// train-2.
void add_row(MeasuredRun row, std::vector<MeasuredRun>& rows) {
  const std::string name = row.row_id;
  for (int number = 2; std::ranges::find(rows, row.row_id, &MeasuredRun::row_id) != rows.end();
       ++number) {
    row.row_id = fmt::format("{}-{}", name, number);
  }
  rows.push_back(std::move(row));
}

}  // namespace

Result<CommandResult> import_logs_command(const CommandContext& context) {
  const Result<RunFacts> given = facts_of_flags(context);
  if (!given) return given.error();
  std::vector<LogImport> imports;
  std::vector<MeasuredRun> rows;
  for (const std::string& path : context.arguments.words) {
    if (const Status there = check_exists(path, "import", "a training log"); !there) {
      return there.error();
    }
    Result<ImportedLog> log = import_log_file(path, *given);
    if (!log) return log.error();
    imports.push_back({*std::move(log), {}, {}});
    price(imports.back());
    Result<MeasuredRun> row = measured_run_of(imports.back().log);
    if (row) add_row(*std::move(row), rows);
  }
  CommandResult result;
  result.exit_code = rows.size() == imports.size() ? kDone : kNo;
  if (context.json) {
    result.output = log_imports_json(imports);
  } else {
    for (const LogImport& import : imports) {
      result.output += (result.output.empty() ? "" : "\n") + log_import_text(import, context.style);
    }
  }
  if (!rows.empty() && context.arguments.has("output")) {
    result.note(write_named(context, "output", runs_to_csv(rows)));
    if (!context.json && !context.quiet && !result.not_written) {
      result.output += "\n" + counted(std::ssize(rows), "row") + " of measured runs in " +
                       *context.arguments.value("output") + ".\n";
    }
  }
  return result;
}

}  // namespace echelon::cli
