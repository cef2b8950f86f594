// plan calibrate: times this machine with plan-run and writes the rates derived from it.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <system_error>

#include "cli/commands/calibrate.hpp"
#include "cli/commands/command.hpp"
#include "cli/flags/request.hpp"
#include "cli/flags/this_machine.hpp"
#include "cli/system/subprocess.hpp"
#include "cli/system/temp_dir.hpp"
#include "cli/system/terminal.hpp"
#include "core/base/files.hpp"
#include "core/base/text.hpp"
#include "core/run/measurements.hpp"
#include "core/run/run_event.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/calibration/fit/machine.hpp"
#include "costmodel/collectives/collectives.hpp"
#include "report/calibrate.hpp"
#include "report/format.hpp"

namespace echelon::cli {

namespace {

/// Replaces the collectives between threads by those between processes, for each size of a rank.
Status take_processes(const std::string& program, const std::string& path, RunProgress& progress,
                      std::vector<Measurement>& all) {
  std::map<int, int> ranks_of;  // by cores
  for (const Measurement& one : all) ranks_of[one.cores] = one.ranks;
  std::erase_if(all, [](const Measurement& one) { return collective_named(one.what).has_value(); });
  for (const auto& [cores, ranks] : ranks_of) {
    if (ranks < 2) continue;
    const Result<Subprocess> child =
        under_mpirun({program, "--measure-between", path, std::to_string(cores)}, ranks);
    if (!child) return child.error();
    progress.show("measuring " + std::to_string(ranks) + " processes", false);
    const Result<Measurements> between = measured_by(*child, path, progress);
    if (!between) return between.error();
    const auto after = std::ranges::find_if(all, [c = cores](auto& one) { return one.cores > c; });
    all.insert(after, between->all.begin(), between->all.end());
  }
  return Done{};
}

Result<Measurements> measured(const CommandContext& context, bool processes) {
  if (processes && in_path("mpirun").empty()) return under_mpirun({}, 1).error();
  const Result<TempDir> temp_dir = TempDir::make();
  if (!temp_dir) return temp_dir.error();
  const std::string path = temp_dir->file("measurements.json");
  const std::string program = own_folder() + "/plan-run";
  RunProgress progress(!context.quiet && !context.json);
  Result<Measurements> all = measured_by({.words = {program, "--measure", path}}, path, progress);
  if (!all || !processes) return all;
  if (const Status taken = take_processes(program, path, progress, all->all); !taken) {
    return taken.error();
  }
  return all;
}

}  // namespace

Result<std::string> calibration_target(const CommandContext& context, const std::string& usual) {
  if (const auto named = context.arguments.value("output")) return std::string(*named);  // checked
  if (usual.empty()) {
    return environment_error("plan calibrate", "neither HOME nor XDG_CONFIG_HOME is set",
                             "name the file: -o this-machine.json");
  }
  std::error_code failed;
  const std::filesystem::path folder = std::filesystem::path(usual).parent_path();
  std::filesystem::create_directories(folder, failed);
  if (failed) {
    return environment_error(folder.string(), failed.message(),
                             "name another file: -o this-machine.json");
  }
  if (const Status ok = check_writable(usual); !ok) return ok.error();
  return usual;
}

Result<Measurements> measured_by(const Subprocess& child, const std::string& path,
                                 RunProgress& progress) {
  const Result<ExitStatus> exit_status = run_subprocess(child, [&](std::string_view line) {
    const Result<RunEvent> event = parse_run_event(line, "plan-run");
    if (event) progress.show("measuring " + event->text, false);
  });
  if (!exit_status) return exit_status.error();
  progress.wipe();
  if (exit_status->signal != 0 || exit_status->exit_code != 0) {
    return environment_error("plan-run",
                             exit_status->signal != 0
                                 ? fmt::format("killed by signal {}", exit_status->signal)
                                 : fmt::format("exit code {}", exit_status->exit_code),
                             "nothing was measured");
  }
  constexpr std::int64_t kLongest = 64 << 20;
  const Result<std::string> text = read_file(path, kLongest);
  if (!text) return text.error();
  return parse_measurements(*text, path);
}

std::string how_measured(std::string_view flags) {
  return fmt::format("measured on this machine by plan calibrate{}, {:%Y-%m-%d}", flags,
                     fmt::gmtime(std::time(nullptr)));
}

std::string busy_text(double load, int cores) {
  return load < kBusy * cores ? "" : fmt::format("load {:.1f} on {}", load, counted(cores, "core"));
}

Result<CommandResult> calibrate_command(const CommandContext& context) {
  if (const Setting* backend = context.settings.find("backend"); backend != nullptr) {
    if (backend->value == "cuda") return calibrate_gpus(context);
    if (backend->value != "cpu") {
      return input_error(backend->where, in_quotes(backend->value), "one of cpu, cuda");
    }
  }
  const Setting* launcher = context.settings.find("launcher");
  const bool processes = launcher != nullptr && launcher->value == "mpi";
  if (launcher != nullptr && !processes && launcher->value != "local") {
    return input_error(launcher->where, in_quotes(launcher->value), "one of local, mpi");
  }
  const Result<std::string> target = calibration_target(context, machine_calibration_file());
  if (!target) return target.error();
  const HostFacts host = host_facts();
  double load = 0;
  const std::string busy = getloadavg(&load, 1) == 1 ? busy_text(load, host.cores) : "";
  if (!busy.empty() && !context.quiet) {
    complain("the machine is busy (" + busy +
             "): rates of ranks of several cores will leave out what their threads wait for each "
             "other");
  }
  const Result<Measurements> all = measured(context, processes);
  if (!all) return all.error();
  std::string how = how_measured(processes ? " --launcher mpi" : "");
  if (!busy.empty()) how += ", while it was busy (" + busy + ")";
  std::vector<CalibrationByCores> rates;
  const Result<Framework> framework = find_framework(kExecutingFramework);
  if (!framework) return framework.error();
  for (const Measurement& one : all->all) {
    if (!rates.empty() && rates.back().cores == one.cores) continue;
    const Result<ClusterTopology> cluster = this_machine(host, host.cores / one.cores);
    if (!cluster) return cluster.error();
    const Result<Calibration> prior = pick_calibration(cluster->gpu(), *framework);
    if (!prior) return prior.error();
    rates.push_back({one.cores, calibrated(all->all, one.cores, cluster->gpu(), *prior, how)});
  }
  const std::string file = calibrations_to_json(rates);
  if (*target == "-") return CommandResult{file};
  CommandResult result;
  if (const Status written = write_file(*target, file); !written) {
    result.note(at({*target, "--output"}, written.error()));
  }
  if (context.json) result.output = measurements_to_json(*all);
  if (context.json || context.quiet) return result;
  std::vector<FittedRates> columns;
  for (const CalibrationByCores& each : rates) {
    columns.push_back({each.cores == 1 ? "1 core a rank" : fmt::format("{} cores", each.cores),
                       each.calibration});
  }
  result.output = calibrate_text(*all, columns, context.style);
  if (result.not_written) return result;
  result.output +=
      fmt::format("\nWritten to {}; --cluster this-machine plans with it{}.\n", *target,
                  *target == machine_calibration_file() ? "" : " under --calibration " + *target);
  return result;
}

}  // namespace echelon::cli
