// plan fit REPORT.json ...: refits the rates of the plans to the measured runs.
#include "cli/commands/fit_reports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "cli/commands/next_run_advice.hpp"
#include "cli/flags/request.hpp"
#include "cli/flags/this_machine.hpp"
#include "core/base/content_hash.hpp"
#include "core/base/files.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "evaluation/refit.hpp"
#include "report/fit.hpp"
#include "report/format.hpp"
#include "report/plan_files.hpp"

namespace echelon::cli {

namespace {

/// The reports of one machine that the fit uses, and the reasons why others are left out.
struct Reports {
  std::vector<RunObservation> runs;
  std::vector<std::string> left_out;
};

std::string kind_of_run(const RunReport& report) {
  return fmt::format("{} under {}, backend {}", report.plan.cluster, report.plan.framework,
                     report.backend);
}

/// The description of the run's cluster must not have changed.
Result<ClusterTopology> machine_of_run(const RunReport& report, const std::string& path) {
  Result<ClusterTopology> cluster = load_cluster(report.plan.cluster, report.plan.gpus);
  if (!cluster) return at({path, path}, cluster.error());
  if (hash_of(*cluster) == report.plan.cluster_hash) return cluster;
  return input_error(
      path,
      fmt::format("a run on another machine: its {} has hash {}, this machine's has {}",
                  report.plan.cluster, report.plan.cluster_hash, hash_of(*cluster)),
      "reports of runs on this one", "rates belong to one machine: fit on the machine of the runs");
}

Result<Reports> read_reports(const std::vector<std::string>& paths) {
  Reports out;
  std::string kind;
  std::map<std::string, std::string> seen;  // paths by the hash of what they hold
  for (const std::string& path : paths) {
    Result<RunReport> report = read_run_report(path);
    if (!report) return report.error();
    const auto [before, first] = seen.emplace(content_hash(run_report_to_json(*report)), path);
    if (!first) {
      out.left_out.push_back(path + ": the same run as " + before->second);
      continue;
    }
    if (kind.empty()) kind = kind_of_run(*report);
    if (kind_of_run(*report) != kind) {
      return input_error(path, "a run on " + kind_of_run(*report),
                         fmt::format("a run on {}, like {}", kind, paths.front()),
                         "fit the reports of each machine, framework and backend separately");
    }
    const Result<ClusterTopology> cluster = machine_of_run(*report, path);
    if (!cluster) return cluster.error();
    const Result<Framework> framework = find_framework(report->plan.framework);
    if (!framework) return at({path, path}, framework.error());
    Result<RunObservation> run = observed_run(path, *std::move(report), *cluster, *framework);
    if (run) {
      out.runs.push_back(*std::move(run));
    } else {
      out.left_out.push_back(run.error().where + ": " + run.error().found);
    }
  }
  return out;
}

/// What the rates hold besides the machine, from reports that say how busy it was, and runs that
/// the initial rates, `before`, hold already.
std::vector<std::string> doubts_about(const std::vector<RunObservation>& runs,
                                      const std::vector<RefitRun>& fitted,
                                      const Calibration& before) {
  constexpr double kIdle = 0.1;  // of all cores
  constexpr double kFar = 2;
  std::vector<std::string> out;
  std::string busy;
  for (const RunObservation& run : runs) {
    const std::optional<OtherPrograms> others = other_programs(run.report);
    if (!others || others->used <= kIdle * others->cores) continue;
    busy += fmt::format("{}{} {:.2f} of {}", busy.empty() ? "" : ", ", run.name, others->used,
                        others->cores);
  }
  if (!busy.empty()) {
    out.push_back("Other programs used cores while steps were measured (" + busy +
                  "): the fit takes that for the speed of this machine, and its rates predict runs "
                  "beside as much other load. For those of an idle machine run the plans again on "
                  "one.");
  }
  for (const RunObservation& run : runs) {
    // As refit() lists them: "2 runs on this-machine: a.json, b.json".
    if ((before.fitted_to + ",").find(" " + run.name + ",") == std::string::npos) continue;
    out.push_back(
        fmt::format("The initial rates were fitted to a report called {} before: if it is "
                    "this one, it counts twice.",
                    run.name));
  }
  for (const RefitRun& run : fitted) {
    const double off = std::max(run.measured / run.after, run.after / run.measured);
    if (off <= kFar) continue;
    out.push_back(
        fmt::format("{} is {:.3g} times as {} as predicted even after the fit: the machine "
                    "was not the same in all runs, or this one stalled. It moves all "
                    "rates; leave its report out unless it is right.",
                    run.name, off, run.measured > run.after ? "slow" : "fast"));
  }
  return out;
}

/// The rates the reports' plans were priced with: --calibration, the file their plans name, or the
/// present calibration of the machine.
Result<std::vector<CalibrationByCores>> rates_before(const CommandContext& context,
                                                     const std::vector<RunObservation>& runs) {
  std::string path = runs.front().report.plan.calibration_path;
  for (const RunObservation& run : runs) {
    if (run.report.plan.calibration_path == path || context.arguments.has("calibration")) continue;
    return input_error(run.name, "a plan priced with other rates than " + runs.front().name,
                       "one calibration to start from", "name it: --calibration FILE");
  }
  if (const auto named = context.arguments.value("calibration")) path = *named;
  const std::string usual = machine_calibration_file();
  std::error_code ignored;
  if (path.empty() && runs.front().cluster.name() == kThisMachine && !usual.empty() &&
      std::filesystem::exists(usual, ignored)) {
    path = usual;
  }
  if (path.empty()) {
    Result<Calibration> shipped =
        pick_calibration(runs.front().cluster.gpu(), runs.front().framework);
    if (!shipped) return shipped.error();
    return std::vector<CalibrationByCores>{{1, *std::move(shipped)}};
  }
  const Setting from{path, context.arguments.has("calibration") ? "--calibration" : "plan fit"};
  if (const Status there = check_exists(path, from.where, "a calibration file"); !there) {
    return there.error();
  }
  Result<std::vector<CalibrationByCores>> all = load_calibrations(path);
  if (!all) return at(from, all.error());
  return all;
}

std::string where_it_goes(const CommandContext& context, bool here) {
  const std::string usual = machine_calibration_file();
  if (const auto path = context.arguments.value("output")) {
    return fmt::format("\nWritten to {}; plans use it {}.\n", *path,
                       here && *path == usual ? "by default" : "with --calibration " + *path);
  }
  return here && !usual.empty()
             ? fmt::format("\nNothing was written: -o {} makes these the rates of {}.\n", usual,
                           kThisMachine)
             : "\nNothing was written: -o FILE writes a file for --calibration.\n";
}

}  // namespace

bool is_run_report(const std::string& path) {
  std::ifstream file(path);
  char first = 0;
  return file >> first && first == '{';
}

Result<CommandResult> fit_reports_command(const CommandContext& context) {
  Result<Reports> reports = read_reports(context.arguments.words);
  if (!reports) return reports.error();
  std::vector<LearnedRates> learned;
  std::string file;
  const bool here = !reports->runs.empty() && reports->runs.front().cluster.name() == kThisMachine;
  if (!reports->runs.empty()) {
    Result<std::vector<CalibrationByCores>> rates = rates_before(context, reports->runs);
    if (!rates) return rates.error();
    std::vector<std::vector<RunObservation>> by_entry(rates->size());
    for (RunObservation& run : reports->runs) {
      const NodeSpec& node = run.cluster.node();
      const int cores = std::max(1, node.cores / node.gpus);
      by_entry[entry_for(*rates, cores)].push_back(std::move(run));
    }
    for (std::size_t i = 0; i < rates->size(); ++i) {
      if (by_entry[i].empty()) continue;
      CalibrationByCores& entry = (*rates)[i];
      learned.push_back({here ? entry.cores : 0, refit(by_entry[i], entry.calibration)});
      const Refit& known = learned.back().learned;
      learned.back().doubts = doubts_about(by_entry[i], known.runs, entry.calibration);
      std::vector<std::string> plan_files;
      for (const RunObservation& run : by_entry[i]) plan_files.push_back(run.report.plan_path);
      learned.back().next = next_run_advice(known.known, known.plans, known.runs, plan_files);
      entry.calibration = learned.back().learned.calibration;
    }
    file = here ? calibrations_to_json(*rates) : calibration_to_json(rates->front().calibration);
  }
  const bool to_output = context.arguments.value("output") == "-";
  if (to_output && !file.empty()) return CommandResult{file};
  CommandResult result{context.json ? learned_json(learned, reports->left_out)
                                    : learned_text(learned, reports->left_out, context.style)};
  if (!file.empty()) result.note(write_named(context, "output", file));
  if (learned.empty()) result.exit_code = kNo;
  if (!learned.empty() && !context.json && !context.quiet && !result.not_written)
    result.output += where_it_goes(context, here);
  return result;
}

}  // namespace echelon::cli
