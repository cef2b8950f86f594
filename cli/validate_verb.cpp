// plan validate RUNS.csv, plan fit RUNS.csv
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "cli/request.hpp"
#include "cli/terminal.hpp"
#include "cli/verbs.hpp"
#include "core/base/files.hpp"
#include "core/base/parse_quantity.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "evaluation/ablate.hpp"
#include "evaluation/release_calibrations.hpp"
#include "evaluation/validate.hpp"
#include "report/fit.hpp"
#include "report/format.hpp"
#include "report/validation.hpp"

namespace echelon::cli {

namespace {

/// The table the first word names; - is standard input.
Result<std::vector<MeasuredRun>> runs_of(const Invocation& call) {
  const std::string& path = call.arguments.words.front();
  if (path == "-") return read_runs("/dev/stdin");
  const std::string verb(call.arguments.verb->name);
  const Status there = check_exists(path, verb, "a table of measured runs");
  if (!there) return there.error();
  return read_runs(path);
}

/// Parts of --folds; 0 without it.
Result<int> folds_of_call(const Invocation& call) {
  const auto given = call.arguments.value("folds");
  if (!given) return 0;
  constexpr int kMost = 1000;
  const Result<int> parts = parse_int(*given, "--folds", 2);
  if (parts && *parts > kMost) return input_error("--folds", *given, "from 2 to 1,000 parts");
  return parts;
}

/// Those of --calibrations, else of the folder next to the table; none where --calibration predicts
/// all rows.
Result<std::vector<Calibration>> releases_of(const Invocation& call) {
  const bool one = call.arguments.has("calibration");
  if (const auto named = call.arguments.value("calibrations")) {
    if (one) {
      return input_error("--calibrations", "--calibrations and --calibration together",
                         "one of them: --calibration predicts all rows");
    }
    Result<std::vector<Calibration>> all = load_release_calibrations(*named);
    if (!all) return at({*named, "--calibrations"}, all.error());
    return all;
  }
  const std::string folder = release_calibrations_next_to(call.arguments.words.front());
  if (one || folder.empty()) return std::vector<Calibration>{};
  return load_release_calibrations(folder);
}

}  // namespace

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

Result<Outcome> fit_verb(const Invocation& call) {
  const std::vector<std::string>& words = call.arguments.words;
  for (const std::string& word : words) {
    if (word == "-") continue;
    const Status there = check_exists(word, "fit", "a table of measured runs, or a run report");
    if (!there) return there.error();
  }
  const auto reports = std::ranges::count_if(words, is_run_report);
  if (reports == std::ssize(words)) return learn_verb(call);
  if (reports > 0) {
    return input_error("fit", "tables of runs and run reports together",
                       "either of them: a table fits calibrations of GPU families, reports the "
                       "rates of one machine");
  }
  if (words.size() > 1) {
    return input_error("fit", counted(std::ssize(words), "table"), "one table, or run reports");
  }
  if (const auto named = call.arguments.value("calibration")) {
    return input_error("--calibration", *named + " beside a table of runs",
                       "run reports: a table is fitted from the shipped priors");
  }
  const Result<std::vector<MeasuredRun>> rows = runs_of(call);
  if (!rows) return rows.error();
  constexpr int kParts = 10;
  ProgressLine line("fitting " + counted(static_cast<std::int64_t>(rows->size()), "row"),
                    call.quiet);
  const FitTable fitted = fit_with_bands(*rows, kParts, [&](double share) { line.show(share); });
  if (const auto folder = call.arguments.value("output")) {
    for (const FittedCalibration& one : fitted.calibrations) {
      const std::string path = *folder + "/" + one.calibration.name + ".json";
      const Status written = write_file(path, calibration_to_json(one.calibration));
      if (!written) return at({path, "--output"}, written.error());
    }
  }
  Outcome outcome{call.json ? fit_json(fitted) : fit_text(fitted, call.style)};
  if (fitted.calibrations.empty()) outcome.exit_code = kNo;
  return outcome;
}

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
  const Result<std::vector<MeasuredRun>> rows = runs_of(call);
  if (!rows) return rows.error();
  Result<std::vector<Calibration>> releases = releases_of(call);
  if (!releases) return releases.error();
  options.releases = *std::move(releases);
  const Result<int> parts = folds_of_call(call);
  if (!parts) return parts.error();
  if (*parts > 0 && options.calibration) {
    return input_error("--folds", "--folds and --calibration together",
                       "one of them: --folds fits calibrations of its own");
  }
  const bool ablation = call.arguments.has("ablation");
  if (ablation && *parts == 0) {
    return input_error("--ablation", "no --folds", "--folds N: terms are judged out of fold");
  }
  const auto count = static_cast<std::int64_t>(rows->size());
  ProgressLine line("predicting " + counted(count, "row"), call.quiet);
  constexpr std::int64_t kTakesAWhile = 500;
  if (count >= kTakesAWhile) line.announce();
  const Result<ValidationReport> as_shipped = validate(*rows, options);
  if (!as_shipped) return as_shipped.error();
  std::optional<ValidationReport> unseen;
  std::vector<AblatedTerm> terms;
  if (*parts > 0) {
    const FoldedFit fit = fit_folds(*rows, *parts, {}, [&](double share) { line.show(share); });
    Result<ValidationReport> judged = validate_folds(*rows, fit, options.where);
    if (!judged) return judged.error();
    unseen = *std::move(judged);
    if (ablation) {
      constexpr int kParts = 4;  // fitting again for every term takes its time
      terms = ablate(*rows, fit_folds(*rows, kParts), [&](double share) { line.show(share); });
    }
  }
  const ValidationReport* report = unseen ? &*unseen : &*as_shipped;

  Outcome outcome;
  outcome.output =
      call.json ? validation_json(*report)
                : validation_text(*report, limit, call.style) + ablation_text(terms, call.style);
  const Status written = write_named(call, "rows", validation_rows_csv(*report));
  if (!written) return written.error();
  const Status drawn = write_named(call, "plot", validation_svg(*report));
  if (!drawn) return drawn.error();
  const std::string picture = call.arguments.value("plot").value_or("");
  const Status paged = write_named(call, "page",
                                   accuracy_page(*report, unseen ? &*as_shipped : nullptr,
                                                 picture.substr(picture.rfind('/') + 1), terms));
  if (!paged) return paged.error();
  if (limit && (report->time.rows == 0 || report->time.mean_abs > *limit)) outcome.exit_code = kNo;
  return outcome;
}

}  // namespace echelon::cli
