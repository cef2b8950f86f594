// plan validate RUNS.csv
#include <utility>

#include "cli/request.hpp"
#include "cli/terminal.hpp"
#include "cli/verbs.hpp"
#include "core/files.hpp"
#include "core/number.hpp"
#include "costmodel/calibration_io.hpp"
#include "planner/validation.hpp"
#include "report/validation.hpp"
#include "report/words.hpp"

namespace echelon::cli {

namespace {

/// Writes a second output to the file a flag names; nothing without the flag.
Status write_named(const Invocation& call, std::string_view flag, std::string_view text) {
  const auto path = call.arguments.value(std::string(flag));
  if (!path) return Done{};
  const std::string where = "--" + std::string(flag);
  if (path->empty()) return input_error(where, "an empty name", "a file name");
  if (const Status written = write_file(*path, text); !written) {
    Error error = written.error();
    error.where = where + ": " + error.where;
    return error;
  }
  return Done{};
}

}  // namespace

Result<Outcome> validate_verb(const Invocation& call) {
  std::optional<double> limit;
  if (const Setting* setting = call.settings.find("limit")) {
    constexpr double kMost = 1000;
    const Result<double> value = parse_ratio(setting->value, setting->where, 0, kMost);
    if (!value) return value.error();
    limit = *value;
  }
  ValidationOptions options;
  // A calibration set for planning in the environment or a file does not bend a validation.
  if (const auto path = call.arguments.value("calibration")) {
    if (const Status there = check_exists(*path, "--calibration", "a calibration file"); !there) {
      return there.error();
    }
    const Result<Calibration> calibration = load_calibration(*path);
    if (!calibration) return at({*path, "--calibration"}, calibration.error());
    options.calibration = *calibration;
  }
  options.where = call.arguments.value("where").value_or("");
  const std::string& path = call.arguments.words.front();
  if (path != "-") {
    const Status there = check_exists(path, "validate", "a table of measured runs");
    if (!there) return there.error();
  }
  const Result<std::vector<RunRow>> rows = read_runs(path == "-" ? "/dev/stdin" : path);
  if (!rows) return rows.error();
  const auto count = static_cast<std::int64_t>(rows->size());
  ProgressLine line("predicting " + counted(count, "row"), call.quiet);
  constexpr std::int64_t kTakesAWhile = 500;
  if (count >= kTakesAWhile) line.announce();
  const Result<ValidationReport> report = validate(*rows, options);
  if (!report) return report.error();

  Outcome outcome;
  outcome.output =
      call.json ? validation_json(*report) : validation_text(*report, limit, call.style);
  const Status written = write_named(call, "rows", validation_rows_csv(*report));
  if (!written) return written.error();
  const Status drawn = write_named(call, "plot", validation_svg(*report));
  if (!drawn) return drawn.error();
  const std::string picture = call.arguments.value("plot").value_or("");
  const Status paged = write_named(
      call, "page", accuracy_page(*report, nullptr, picture.substr(picture.rfind('/') + 1)));
  if (!paged) return paged.error();
  if (limit && (report->time.rows == 0 || report->time.mean_abs > *limit)) outcome.exit_code = kNo;
  return outcome;
}

}  // namespace echelon::cli
