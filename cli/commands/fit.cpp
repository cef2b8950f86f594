// plan fit: --catalog fits the calibrations of all GPU families; the table or the training logs of
// one site go to fit_site.cpp, run reports to fit_reports.cpp.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "cli/commands/command.hpp"
#include "cli/commands/fit_reports.hpp"
#include "cli/commands/fit_site.hpp"
#include "cli/commands/log_facts.hpp"
#include "cli/commands/measured_runs.hpp"
#include "cli/flags/request.hpp"
#include "cli/system/terminal.hpp"
#include "core/base/files.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "evaluation/validate.hpp"
#include "report/fit.hpp"
#include "report/format.hpp"

namespace echelon::cli {
namespace {

/// Facts of a run are given as flags only next to logs, which may lack them.
Status check_flags(const CommandContext& context) {
  const Settings given = settings_of_flags(context.arguments);
  for (const auto& [name, setting] : given.all()) {
    const Flag* flag = find_flag(name);
    if (flag == nullptr || (flag->groups & (kFit | kOutput)) != 0) continue;
    return input_error(setting.where, setting.where + " without a training log",
                       "a flag of plan fit: tables and reports state their runs themselves");
  }
  return Done{};
}

Result<CommandResult> fit_logs(const CommandContext& context) {
  for (const char* other : {"catalog", "where"}) {
    if (!context.arguments.has(other)) continue;
    return input_error(std::string("--") + other, std::string("--") + other + " with training logs",
                       "a table of measured runs (plan import writes one)");
  }
  return fit_site_command(context);
}

}  // namespace

Result<CommandResult> fit_command(const CommandContext& context) {
  const std::vector<std::string>& words = context.arguments.words;
  for (const std::string& word : words) {
    if (word == "-") continue;
    const Status there = check_exists(word, "fit", "a table of measured runs, or a run report");
    if (!there) return there.error();
  }
  const auto logs = std::ranges::count_if(words, is_training_log);
  if (logs == std::ssize(words)) return fit_logs(context);
  if (logs > 0) {
    return input_error("fit", "training logs and other files together",
                       "files of one kind: training logs, a table of runs or run reports");
  }
  if (const Status ok = check_flags(context); !ok) return ok.error();
  const auto reports = std::ranges::count_if(words, is_run_report);
  if (reports > 0) {
    for (const char* other : {"catalog", "where"}) {
      if (!context.arguments.has(other)) continue;
      return input_error(std::string("--") + other,
                         std::string("--") + other + " with a run report",
                         "a table of measured runs");
    }
  }
  if (reports == std::ssize(words)) return fit_reports_command(context);
  if (reports > 0) {
    return input_error("fit", "tables of runs and run reports together",
                       "one of them: rows of a table hold the step of a run, reports its parts");
  }
  if (words.size() > 1) {
    return input_error("fit", counted(std::ssize(words), "table"), "one table, or run reports");
  }
  if (!context.arguments.has("catalog")) return fit_site_command(context);
  for (const char* other : {"calibration", "where"}) {
    if (!context.arguments.has(other)) continue;
    return input_error(std::string("--") + other, std::string("--") + other + " with --catalog",
                       "one of them: --catalog fits all rows, from the shipped priors");
  }
  const Result<std::vector<MeasuredRun>> rows = measured_runs_of(context);
  if (!rows) return rows.error();
  constexpr int kParts = 10;
  ProgressLine line("fitting " + counted(static_cast<std::int64_t>(rows->size()), "row"),
                    context.quiet);
  const FitTable fitted = fit_with_bands(*rows, kParts, [&](double share) { line.show(share); });
  CommandResult result{context.json ? fit_json(fitted) : fit_text(fitted, context.style)};
  if (const auto folder = context.arguments.value("output")) {
    std::error_code ignored;  // writing the files reports it
    if (!fitted.calibrations.empty()) std::filesystem::create_directory(*folder, ignored);
    for (const FittedCalibration& one : fitted.calibrations) {
      const std::string path = *folder + "/" + one.calibration.name + ".json";
      const Status written = write_file(path, calibration_to_json(one.calibration));
      if (!written) result.note(at({path, "--output"}, written.error()));
    }
  }
  if (fitted.calibrations.empty()) result.exit_code = kNo;
  return result;
}

}  // namespace echelon::cli
