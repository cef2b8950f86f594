// plan fit of a table or of training logs: the rates of one site, after one run or a few.
#include "cli/commands/fit_site.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/commands/log_facts.hpp"
#include "cli/commands/measured_runs.hpp"
#include "cli/commands/next_run_advice.hpp"
#include "cli/flags/request.hpp"
#include "core/base/files.hpp"
#include "core/base/text.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "evaluation/fit_memory.hpp"
#include "evaluation/observations.hpp"
#include "evaluation/row_filter.hpp"
#include "evaluation/site_fit.hpp"
#include "report/fit.hpp"
#include "report/format.hpp"

namespace echelon::cli {
namespace {

std::string name_of_row(const MeasuredRun& row) {
  return fmt::format("row {}{}", row.row_number,
                     row.row_id.empty() ? "" : fmt::format(" ({})", row.row_id));
}

/// One row per training log. Errors: a log that is refused, with its reason; a missing fact, with
/// the flag that gives it.
Result<std::vector<MeasuredRun>> rows_of_logs(const CommandContext& context) {
  const Result<RunFacts> given = facts_of_flags(context);
  if (!given) return given.error();
  std::vector<MeasuredRun> rows;
  for (const std::string& path : context.arguments.words) {
    const Result<ImportedLog> log = import_log_file(path, *given);
    if (!log) return log.error();
    Result<MeasuredRun> row = measured_run_of(*log);
    if (!row) return row.error();
    row->row_number = std::ssize(rows) + 1;
    row->row_id = path;
    rows.push_back(*std::move(row));
  }
  return rows;
}

/// The rows that --where keeps. Error: a row that cannot be read.
Result<std::vector<MeasuredRun>> rows_of(const CommandContext& context) {
  if (is_training_log(context.arguments.words.front())) return rows_of_logs(context);
  Result<std::vector<MeasuredRun>> all = measured_runs_of(context);
  if (!all) return all.error();
  const Result<RowFilter> filter =
      RowFilter::parse(context.arguments.value("where").value_or(""), "--where");
  if (!filter) return filter.error();
  std::vector<MeasuredRun> kept;
  for (MeasuredRun& row : *all) {
    if (!filter->keeps(row)) continue;
    if (!row.malformed.empty()) {
      return input_error(fmt::format("{}, {}", context.arguments.words.front(), name_of_row(row)),
                         row.malformed, "the numbers of a run",
                         "correct the row, or leave it out with --where");
    }
    kept.push_back(std::move(row));
  }
  return kept;
}

std::string site_of_run(const Observation& run) {
  return fmt::format("{} under {}", run.cost_model.cluster().gpu().name,
                     run.cost_model.framework().name);
}

/// Error: runs of several machines or frameworks.
Status check_one_site(const CommandContext& context, const std::vector<MeasuredRun>& rows,
                      const std::vector<Observation>& runs) {
  for (const Observation& run : runs) {
    if (site_of_run(run) == site_of_run(runs.front())) continue;
    return input_error(
        fmt::format("{}, {}", context.arguments.words.front(), name_of_row(rows[run.row])),
        "a run on " + site_of_run(run),
        fmt::format("runs on {}, like {}", site_of_run(runs.front()),
                    name_of_row(rows[runs.front().row])),
        "fit each GPU and framework separately, with --where; --catalog fits all of them for other "
        "sites");
  }
  return Done{};
}

/// Error: a run that is faster than its GPUs can multiply.
Status check_possible(const CommandContext& context, const std::vector<MeasuredRun>& rows,
                      const std::vector<Observation>& runs) {
  for (const Observation& run : runs) {
    const PlanCosts costs = run.cost_model.price(run.plan);
    const double mfu = costs.mfu * (costs.time.step / (run.measured * kSecond));
    if (mfu <= 1) continue;
    const GpuSpec& gpu = run.cost_model.cluster().gpu();
    const FlopsPerSecond peak = gpu.peak(run.cost_model.job().precision.compute);
    return input_error(
        fmt::format("{}, {}", context.arguments.words.front(), name_of_row(rows[run.row])),
        fmt::format(
            "a step of {}, in which {} do {:.3g} times the work that they can: {} per GPU at "
            "the peak",
            duration(run.measured * kSecond), counted(run.plan.gpus(), "GPU"), mfu,
            fmt::format("{:.0f} TFLOP/s", peak.in(1_TFLOPS))),
        "the seconds of a whole optimizer step, and its batch, sequence and model",
        "correct the row, or leave it out with --where");
  }
  return Done{};
}

/// Runs that the fit cannot explain: their steps, or what the row says of them, are another's.
std::vector<std::string> doubts_about(std::span<const RefitRun> runs) {
  constexpr double kFar = 2;
  std::vector<std::string> out;
  for (const RefitRun& run : runs) {
    const double off = std::max(run.measured / run.after, run.after / run.measured);
    if (off <= kFar) continue;
    out.push_back(fmt::format(
        "{} is {:.3g} times as {} as predicted even after the fit: another plan or model than the "
        "row says, another unit than seconds, or a stalled network. It moves all rates; leave it "
        "out with --where unless it is right.",
        run.name, off, run.measured > run.after ? "slow" : "fast"));
  }
  return out;
}

/// That of --calibration, or the shipped one.
Result<Calibration> prior_of(const CommandContext& context, const CostModel& cost_model) {
  const auto path = context.arguments.value("calibration");
  if (!path) return pick_calibration(cost_model.cluster().gpu(), cost_model.framework());
  const Status there = check_exists(*path, "--calibration", "a calibration file");
  if (!there) return there.error();
  Result<Calibration> named = load_calibration(*path);
  if (!named) return at({*path, "--calibration"}, named.error());
  return named;
}

}  // namespace

Result<CommandResult> fit_site_command(const CommandContext& context) {
  const Result<std::vector<MeasuredRun>> rows = rows_of(context);
  if (!rows) return rows.error();
  Observations all = observe(*rows);
  SiteReport report;
  for (const auto& [row, why] : all.reasons) {
    report.left_out.push_back(name_of_row((*rows)[row]) + ": " + why);
  }
  if (all.runs.empty()) {
    std::string why;
    for (const std::string& each : report.left_out) why += "left out: " + each + "\n";
    return CommandResult{why + "Nothing to fit: no row of a run that can be priced.\n", kNo};
  }
  const Status one_site = check_one_site(context, *rows, all.runs);
  if (!one_site) return one_site.error();
  const Status possible = check_possible(context, *rows, all.runs);
  if (!possible) return possible.error();
  const Result<Calibration> prior = prior_of(context, all.runs.front().cost_model);
  if (!prior) return prior.error();
  Runs runs;
  std::vector<std::string> names;
  for (Observation& run : all.runs) {
    runs.push_back(&run);
    names.push_back(name_of_row((*rows)[run.row]));
  }
  report.fit = fit_site(runs, *prior, names);
  report.doubts = doubts_about(report.fit.runs);
  const FittedMemory memory = fit_site_memory(*rows, *prior);
  memory.write_to(report.fit.calibration);
  report.fit.rates.insert(report.fit.rates.end(), memory.rates.begin(), memory.rates.end());
  report.next = next_run_advice(report.fit.known, plans_of(runs, report.fit.calibration),
                                report.fit.runs, {});
  const std::string file = calibration_to_json(report.fit.calibration);
  const auto path = context.arguments.value("output");
  if (path && *path == "-") return CommandResult{file};
  CommandResult result{context.json ? site_fit_json(report) : site_fit_text(report, context.style)};
  result.note(write_named(context, "output", file));
  if (context.json || context.quiet || result.not_written) return result;
  result.output +=
      path ? fmt::format("\nWritten to {}; plans use it with --calibration {}.\n", *path, *path)
           : "\nNothing was written: -o FILE writes a file for --calibration.\n";
  return result;
}

}  // namespace echelon::cli
