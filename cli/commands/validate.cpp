// plan validate RUNS.csv
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "cli/commands/command.hpp"
#include "cli/commands/measured_runs.hpp"
#include "cli/flags/request.hpp"
#include "cli/system/terminal.hpp"
#include "core/base/did_you_mean.hpp"
#include "core/base/files.hpp"
#include "core/base/parse_quantity.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "evaluation/ablate.hpp"
#include "evaluation/validate.hpp"
#include "report/format.hpp"
#include "report/validation.hpp"

namespace echelon::cli {

namespace {

/// Parts of --cross-validate; 0 without it.
Result<int> folds_of(const CommandContext& context) {
  const auto given = context.arguments.value("cross-validate");
  if (!given) return 0;
  constexpr int kMost = 1000;
  const Result<int> parts = parse_int(*given, "--cross-validate", 2);
  if (parts && *parts > kMost)
    return input_error("--cross-validate", *given, "from 2 to 1,000 parts");
  return parts;
}

/// --leave-out; nothing without it.
Result<std::optional<LeaveOut>> left_out_of(const CommandContext& context) {
  const auto given = context.arguments.value("leave-out");
  if (!given) return std::optional<LeaveOut>{};
  const auto found = std::ranges::find(kLeaveOutNames, *given);
  if (found == kLeaveOutNames.end()) {
    return input_error("--leave-out", *given, fmt::format("{}", fmt::join(kLeaveOutNames, ", ")),
                       did_you_mean(*given, std::vector<std::string>(kLeaveOutNames.begin(),
                                                                     kLeaveOutNames.end())));
  }
  return std::optional(static_cast<LeaveOut>(found - kLeaveOutNames.begin()));
}

/// --first-runs; empty without it. `parts` and `left_out`: --cross-validate and --leave-out.
Result<std::vector<int>> first_runs_of(const CommandContext& context, int parts,
                                       std::optional<LeaveOut> left_out) {
  constexpr const char* kFlag = "--first-runs";
  constexpr int kMost = 1000;
  std::vector<int> counts;
  const auto given = context.arguments.value("first-runs");
  if (!given) return counts;
  for (std::size_t from = 0; from <= given->size();) {
    const std::size_t end = std::min(given->find(',', from), given->size());
    const Result<int> count = parse_int(given->substr(from, end - from), kFlag, 1);
    if (!count) return count.error();
    if (*count > kMost) return input_error(kFlag, *given, "from 1 to 1,000 runs");
    counts.push_back(*count);
    from = end + 1;
  }
  if (parts > 0 || context.arguments.has("calibration")) {
    return input_error(kFlag, "--first-runs with --cross-validate or --calibration",
                       "--leave-out publisher or source: it fits its own calibrations");
  }
  if (left_out.value_or(LeaveOut::source) != LeaveOut::source && *left_out != LeaveOut::publisher) {
    return input_error(kFlag, "--first-runs with --leave-out of a gpu or framework",
                       "--leave-out publisher or source: the runs are those of sources");
  }
  return counts;
}

/// --max-error; nothing without it.
Result<std::optional<double>> error_limit_of(const Settings& settings) {
  constexpr double kMost = 1000;
  const Setting* setting = settings.find("max-error");
  if (setting == nullptr) return std::optional<double>{};
  const Result<double> value = parse_ratio(setting->value, setting->where, 0, kMost);
  if (!value) return value.error();
  return std::optional(*value);
}

/// --where and --calibration. A calibration for planning, from the environment or a file, does not
/// change a validation.
Result<ValidationOptions> options_of(const CommandContext& context) {
  ValidationOptions options;
  options.where = context.arguments.value("where").value_or("");
  const auto path = context.arguments.value("calibration");
  if (!path) return options;
  if (const Status there = check_exists(*path, "--calibration", "a calibration file"); !there) {
    return there.error();
  }
  const Result<Calibration> calibration = load_calibration(*path);
  if (!calibration) return at({*path, "--calibration"}, calibration.error());
  options.calibration = *calibration;
  return options;
}

}  // namespace

Result<CommandResult> validate_command(const CommandContext& context) {
  const Result<std::optional<double>> limit = error_limit_of(context.settings);
  if (!limit) return limit.error();
  const Result<ValidationOptions> options = options_of(context);
  if (!options) return options.error();
  const Result<std::vector<MeasuredRun>> rows = measured_runs_of(context);
  if (!rows) return rows.error();
  const Result<int> parts = folds_of(context);
  if (!parts) return parts.error();
  if (*parts > 0 && options->calibration) {
    return input_error("--cross-validate", "--cross-validate and --calibration together",
                       "one of them: --cross-validate fits its own calibrations");
  }
  Result<std::optional<LeaveOut>> left_out = left_out_of(context);
  if (!left_out) return left_out.error();
  const Result<std::vector<int>> first_runs = first_runs_of(context, *parts, *left_out);
  if (!first_runs) return first_runs.error();
  if (!first_runs->empty() && !*left_out) *left_out = LeaveOut::publisher;
  if (*left_out && (*parts > 0 || options->calibration)) {
    const std::string other = *parts > 0 ? "--cross-validate" : "--calibration";
    return input_error("--leave-out", "--leave-out and " + other + " together",
                       "one of them: --leave-out fits its own calibrations");
  }
  const bool ablation = context.arguments.has("ablation");
  if (ablation && *parts == 0 && !*left_out) {
    return input_error("--ablation", "no --cross-validate or --leave-out",
                       "one of them: terms are judged on held-out parts");
  }
  const auto count = static_cast<std::int64_t>(rows->size());
  ProgressLine line("predicting " + counted(count, "row"), context.quiet);
  constexpr std::int64_t kTakesAWhile = 500;
  if (count >= kTakesAWhile) line.announce();
  const Result<ValidationReport> as_shipped = validate(*rows, *options);
  if (!as_shipped) return as_shipped.error();
  std::optional<ValidationReport> unseen;
  std::vector<AblatedTerm> terms;
  if (*parts > 0 || *left_out) {
    const FitProgress progress = [&](double share) { line.show(share); };
    const FoldedFit fit = *left_out ? fit_left_out(*rows, **left_out, progress)
                                    : fit_folds(*rows, *parts, {}, progress);
    Result<ValidationReport> judged = validate_folds(*rows, fit, options->where);
    if (!judged) return judged.error();
    unseen = *std::move(judged);
    if (!first_runs->empty()) {
      unseen->first_runs = judge_first_runs(*rows, fit, *first_runs, progress);
    }
    if (ablation) {
      constexpr int kParts = 4;  // fitting again for every term takes its time
      terms = ablate(*rows, fit_folds(*rows, kParts), progress);
    }
  }
  const ValidationReport* report = unseen ? &*unseen : &*as_shipped;

  CommandResult result;
  result.output = context.json ? validation_json(*report)
                               : validation_text(*report, *limit, context.style) +
                                     ablation_text(terms, context.style);
  result.note(write_named(context, "predictions", validation_rows_csv(*report)));
  result.note(write_named(context, "plot", validation_svg(*report)));
  const std::string picture = context.arguments.value("plot").value_or("");
  result.note(write_named(context, "page",
                          accuracy_page(*report, unseen ? &*as_shipped : nullptr,
                                        picture.substr(picture.rfind('/') + 1), terms)));
  if (*limit && (report->time.rows == 0 || report->time.mean_abs > **limit)) result.exit_code = kNo;
  return result;
}

}  // namespace echelon::cli
