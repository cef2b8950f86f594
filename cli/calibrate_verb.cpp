// plan calibrate: lets plan-run time this machine, and writes the rates that follow.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <system_error>

#include "cli/calibrate.hpp"
#include "cli/child.hpp"
#include "cli/request.hpp"
#include "cli/scratch.hpp"
#include "cli/terminal.hpp"
#include "cli/this_machine.hpp"
#include "cli/verbs.hpp"
#include "core/base/files.hpp"
#include "core/run/measurements.hpp"
#include "core/run/run_event.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/calibration/fit/machine.hpp"
#include "costmodel/collectives/collectives.hpp"
#include "report/calibrate.hpp"

namespace echelon::cli {

namespace {

/// Collectives between processes instead of those between threads, for each size of a rank.
Status take_processes(const std::string& program, const std::string& path, RunProgress& progress,
                      std::vector<Measurement>& all) {
  std::map<int, int> ranks_of;  // by cores
  for (const Measurement& one : all) ranks_of[one.cores] = one.ranks;
  std::erase_if(all, [](const Measurement& one) { return collective_named(one.what).has_value(); });
  for (const auto& [cores, ranks] : ranks_of) {
    if (ranks < 2) continue;
    const Result<Child> child =
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

Result<Measurements> measured(const Invocation& call, bool processes) {
  if (processes && in_path("mpirun").empty()) return under_mpirun({}, 1).error();
  const Result<Scratch> scratch = Scratch::make();
  if (!scratch) return scratch.error();
  const std::string path = scratch->file("measurements.json");
  const std::string program = own_folder() + "/plan-run";
  RunProgress progress(!call.quiet && !call.json);
  Result<Measurements> all = measured_by({.words = {program, "--measure", path}}, path, progress);
  if (!all || !processes) return all;
  if (const Status taken = take_processes(program, path, progress, all->all); !taken) {
    return taken.error();
  }
  return all;
}

}  // namespace

Result<std::string> calibration_target(const Invocation& call, const std::string& usual) {
  if (const auto named = call.arguments.value("output")) return std::string(*named);
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
  return usual;
}

Result<Measurements> measured_by(const Child& child, const std::string& path,
                                 RunProgress& progress) {
  const Result<Ended> ended = run_child(child, [&](std::string_view line) {
    const Result<RunEvent> event = parse_run_event(line, "plan-run");
    if (event) progress.show("measuring " + event->text, false);
  });
  if (!ended) return ended.error();
  progress.wipe();
  if (ended->signal != 0 || ended->exit_code != 0) {
    return environment_error("plan-run",
                             ended->signal != 0 ? fmt::format("killed by signal {}", ended->signal)
                                                : fmt::format("exit code {}", ended->exit_code),
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

Result<Outcome> calibrate_verb(const Invocation& call) {
  if (const Setting* backend = call.settings.find("backend"); backend != nullptr) {
    if (backend->value == "cuda") return calibrate_gpus(call);
    if (backend->value != "cpu") {
      return input_error(backend->where, "'" + backend->value.substr(0, 40) + "'",
                         "one of cpu, cuda");
    }
  }
  const Setting* launcher = call.settings.find("launcher");
  const bool processes = launcher != nullptr && launcher->value == "mpi";
  if (launcher != nullptr && !processes && launcher->value != "local") {
    return input_error(launcher->where, "'" + launcher->value.substr(0, 40) + "'",
                       "one of local, mpi");
  }
  const Result<std::string> target = calibration_target(call, machine_calibration_file());
  if (!target) return target.error();
  const HostFacts host = host_facts();
  if (double load = 0; getloadavg(&load, 1) == 1 && load >= kBusy * host.cores && !call.quiet) {
    complain(
        fmt::format("the machine is busy (load {:.1f} on {} cores): rates of ranks of several "
                    "cores will leave out what their threads wait for each other",
                    load, host.cores));
  }
  const Result<Measurements> all = measured(call, processes);
  if (!all) return all.error();
  const std::string how = how_measured(processes ? " --launcher mpi" : "");
  std::vector<CalibrationByCores> rates;
  const Result<Framework> stack = find_framework(kExecutingFramework);
  if (!stack) return stack.error();
  for (const Measurement& one : all->all) {
    if (!rates.empty() && rates.back().cores == one.cores) continue;
    const Result<ClusterTopology> cluster = this_machine(host, host.cores / one.cores);
    if (!cluster) return cluster.error();
    const Result<Calibration> prior = pick_calibration(cluster->gpu(), *stack);
    if (!prior) return prior.error();
    rates.push_back({one.cores, calibrated(all->all, one.cores, cluster->gpu(), *prior, how)});
  }
  const std::string file = calibrations_to_json(rates);
  if (*target == "-") return Outcome{file};
  if (const Status written = write_file(*target, file); !written) {
    return at({*target, "--output"}, written.error());
  }
  if (call.json) return Outcome{measurements_to_json(*all)};
  if (call.quiet) return Outcome{};
  std::vector<FittedRates> columns;
  for (const CalibrationByCores& each : rates) {
    columns.push_back({each.cores == 1 ? "1 core a rank" : fmt::format("{} cores", each.cores),
                       each.calibration});
  }
  return Outcome{
      calibrate_text(*all, columns, call.style) +
      fmt::format("\nWritten to {}; --cluster this-machine plans with it{}.\n", *target,
                  *target == machine_calibration_file() ? "" : " under --calibration " + *target)};
}

}  // namespace echelon::cli
