// plan run PLAN.json: prices the plan for this machine, starts plan-run on it and reports the
// result.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

#include "cli/commands/command.hpp"
#include "cli/commands/run_relief.hpp"
#include "cli/commands/run_replan.hpp"
#include "cli/flags/request.hpp"
#include "cli/flags/run_flags.hpp"
#include "cli/flags/this_machine.hpp"
#include "cli/system/parent_watch.hpp"
#include "cli/system/subprocess.hpp"
#include "cli/system/temp_dir.hpp"
#include "cli/system/terminal.hpp"
#include "core/base/files.hpp"
#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"
#include "core/run/launch.hpp"
#include "core/run/run_event.hpp"
#include "core/run/run_settings.hpp"
#include "planner/economics.hpp"
#include "planner/explain/plan_detail.hpp"
#include "planner/search/search_outcome.hpp"
#include "report/format.hpp"
#include "report/run.hpp"
#include "report/text/text.hpp"

namespace echelon::cli {

namespace {

/// This process among those of the run, if a launcher started them; a launcher that is detected
/// without --launcher is set. A launcher of one process counts as none, all ranks are threads,
/// unless its processes are to be planned for (--replan).
Result<std::optional<Launch>> launch_of(const CommandContext& context, RunSettings& settings) {
  const bool named = context.settings.find("launcher") != nullptr;
  if (named && settings.launcher == "local") return std::optional<Launch>();
  Result<std::optional<Launch>> found = find_launch(environment_of(environ));
  if (!found) return found.error();
  const std::optional<Launch>& launch = *found;
  const bool several = launch && launch->size > 1;
  if (settings.launcher == "mpi" && several) {
    return input_error("--launcher", "mpi, in " + describe(*launch), "env",
                       "each of these processes would start its own mpirun");
  }
  if (settings.launcher == "mpi") return std::optional<Launch>();
  if (settings.launcher == "env" && !launch) return no_launch_error("--launcher env");
  const bool counted = launch && context.settings.has("replan") && !context.arguments.value("gpus");
  if (!named && (several || counted)) settings.launcher = "env";
  if (settings.launcher != "env") return std::optional<Launch>();
  return found;
}

/// The descriptor of --events.
Result<std::optional<int>> events_of(const CommandContext& context) {
  const auto given = context.arguments.value("events");
  if (!given) return std::optional<int>();
  const Result<int> descriptor = parse_int(*given, "--events", 0);
  if (!descriptor) return descriptor.error();
  // An empty write fails unless the descriptor is open for writing.
  if (write(*descriptor, "", 0) < 0) {
    return input_error("--events", *given, "an open file descriptor",
                       "for example: plan run plan.json --events 3 3>events.jsonl");
  }
  return std::optional(*descriptor);
}

/// Whether the ranks of that cluster are processor cores: this machine, or a description of several
/// machines with `cores`.
bool is_of_cores(const std::string& cluster, std::int64_t ranks) {
  if (cluster == kThisMachine) return true;
  const Result<ClusterTopology> described = load_cluster(cluster, ranks);
  return described && described->node().cores > 0;
}

/// The degrees of `file` where they are executed, for the framework that executes them: on
/// processor cores, or on the GPUs the plan, or --cluster, is for; on as many of them as
/// `replanned_ranks` says.
Result<ResolvedRequest> where_it_runs(const CommandContext& context, const PlanFile& file,
                                      const std::string& path, const std::string& backend,
                                      std::optional<int> replanned_ranks) {
  const auto given = context.arguments.value("cluster");
  const std::string cluster = given.value_or(file.cluster);
  const bool on_gpus = backend == "cuda";
  const bool on_cores = is_of_cores(cluster, file.gpus);
  if (on_gpus && on_cores) {
    return input_error(
        given ? "--cluster" : path, "a plan for processor cores",
        "with --backend cuda a plan for GPUs",
        "--cluster NAME prices its degrees for another cluster; plan topo list shows the names");
  }
  if (given && !on_cores && !on_gpus) {
    return input_error("--cluster", in_quotes(*given),
                       std::string(kThisMachine) + " or a description with cores in its node",
                       "plan run executes on processor cores; plan predict prices a plan for "
                       "another cluster");
  }
  if (!on_cores && !on_gpus) {
    return input_error(path,
                       fmt::format("a plan for {} ({})", file.cluster, counted(file.gpus, "GPU")),
                       "a plan for this machine",
                       "to execute its degrees on this CPU: plan run " + shell_quoted(path) +
                           " --cluster this-machine; on its GPUs: --backend cuda");
  }
  Settings changes;
  if (cluster == kThisMachine) changes.set("cluster", {kThisMachine, "plan run"});
  changes.set("framework", {kExecutingFramework, "plan run"});
  // The backend itself captures what it can.
  if (file.plan.cuda_graphs != CudaGraphs::none) changes.set("cuda-graphs", {"none", "plan run"});
  if (replanned_ranks) changes.set("gpus", {std::to_string(*replanned_ranks), "--replan"});
  for (const char* flag : {"calibration", "precision", "cluster"}) {
    if (const auto value = context.arguments.value(flag))
      changes.set(flag, {*value, std::string("--") + flag});
  }
  return resolve(file, path, changes);
}

Error in_words_of_memory(const PlanRequest& request, const Candidate& candidate) {
  const MemoryPrediction& memory = candidate.prediction.memory;
  const auto ranks = static_cast<int>(candidate.plan.gpus());
  return input_error(
      "plan run",
      fmt::format("{} that need up to {} each", counted(ranks, "rank"), with_gib(memory.peak)),
      fmt::format("at most {} each", with_gib(memory.capacity)),
      cheapest_relief(request, candidate.plan, request.usable_memory()));
}

/// The result of a process whose output another process prints.
Result<CommandResult> result_of_follower(const ExitStatus& exit_status) {
  if (exit_status.signal == 0)
    return CommandResult{"", exit_status.exit_code};  // plan-run reported the reason
  return environment_error("plan-run", fmt::format("killed by signal {}", exit_status.signal));
}

/// Checks the outputs before the run, so that it does not fail at its end because they cannot be
/// written.
Status check_destinations(const CommandContext& context, const RunSettings& settings, bool leads) {
  const auto of_flag = [](const char* flag, const Status& status) -> Status {
    if (status) return status;
    Error error = status.error();
    error.where = std::string("--") + flag + ": " + error.where;
    return error;
  };
  for (const char* flag : {"report", "trace"}) {
    const auto path = context.arguments.value(flag);
    if (!path || !leads) continue;
    if (const Status ok = of_flag(flag, check_writable(*path)); !ok) return ok;
  }
  for (const auto& [flag, path] : {std::pair("export", &settings.export_to),
                                   std::pair("checkpoint-dir", &settings.checkpoint_dir)}) {
    if (path->empty()) continue;
    if (const Status ok = of_flag(flag, check_folder_writable(*path)); !ok) return ok;
  }
  return Done{};
}

/// plan-run itself, or under mpirun.
Result<Subprocess> subprocess_of(const RunSettings& settings, int ranks,
                                 const std::string& settings_path) {
  const std::vector<std::string> words{own_folder() + "/plan-run", settings_path};
  if (settings.launcher == "mpi") return under_mpirun(words, ranks);
  return Subprocess{.words = words};
}

/// mpirun reports a process ended by a signal as shells do; plan-run's own codes are smaller.
bool killed_process(const ExitStatus& exit_status) {
  return exit_status.signal == 0 && exit_status.exit_code > kSignals &&
         exit_status.exit_code <= kSignals + 64;
}

/// A plan priced for where it runs.
struct Ready {
  PlanFile written;  ///< as its file says
  ResolvedRequest resolved;
  Candidate candidate;
  PlanFile priced;
};

/// The plan, or, with `replanned_ranks`, the best for that number. No value: it does not fit, which
/// was reported.
Result<std::optional<Ready>> made_ready(const CommandContext& context, const std::string& path,
                                        PlanFile file, const std::string& backend,
                                        std::optional<int> replanned_ranks) {
  Result<ResolvedRequest> resolved = where_it_runs(context, file, path, backend, replanned_ranks);
  if (!resolved) return resolved.error();
  Result<Candidate> candidate =
      replanned_ranks ? replan(resolved->request) : predict(resolved->request);
  if (!candidate) return candidate.error();
  if (!candidate->fits) {
    complain(in_words_of_memory(resolved->request, *candidate).message());
    return std::optional<Ready>();
  }
  Result<PlanFile> priced = complete_plan_file(resolved->request, *candidate, resolved->provenance);
  if (!priced) return priced.error();
  return std::optional<Ready>(
      Ready{std::move(file), *std::move(resolved), *std::move(candidate), *std::move(priced)});
}

/// The plan that runs in place of the one at `path`, in a file next to the checkpoints; its name.
Result<std::string> keep_replanned(const std::string& path, const Ready& ready,
                                   const std::string& checkpoint_dir, bool shows) {
  std::string written = replanned_path(checkpoint_dir, ready.priced.gpus);
  std::error_code ignored;  // writing the file reports it
  std::filesystem::create_directories(checkpoint_dir, ignored);
  const Status kept = write_file(written, plan_file_to_json(ready.priced));
  if (!kept) return kept.error();
  if (shows) complain(replanned_note(path, ready.written, ready.priced, written));
  return written;
}

/// Reports both predictions if the plan was made for another framework.
void report_predictions(const std::string& path, const Ready& ready) {
  const PlanFile& file = ready.written;
  if (file.framework == kExecutingFramework) return;
  complain(fmt::format("{} was planned for {} with {}: {} per step; here, with {}: {}", path,
                       file.cluster, file.framework, duration(file.predicted.time.total()),
                       kExecutingFramework, duration(ready.priced.predicted.time.total())));
}

/// Reports that mpirun would kill the run before it has written what it leaves.
void report_kill(const Ready& ready, const RunSettings& settings) {
  const std::optional<Seconds> left = time_before_kill(environment_of(environ));
  if (!left) return;
  constexpr double kBusy = 2;  // times the band: other programs may use the cores
  const PlanRequest& request = ready.resolved.request;
  Seconds needed = kBusy * ready.priced.predicted.high;
  for (const std::string* folder : {&settings.checkpoint_dir, &settings.export_to}) {
    if (!folder->empty()) needed += checkpoint_size(request) / request.cluster.storage_bandwidth();
  }
  if (needed <= *left) return;
  constexpr double kLeast = 10;
  complain(fmt::format(
      "mpirun kills this run {} after Ctrl-C or SIGTERM, and its step and what is written after it "
      "may take {}: report and checkpoint would be lost; mpirun --mca odls_base_sigkill_timeout {} "
      "leaves them time",
      duration(*left), duration(needed), std::ceil(std::max(kLeast, 2 * needed.in(kSecond)))));
}

/// Runs plan-run to its end; its lines go to the terminal and to `events`.
Result<ExitStatus> followed(const Subprocess& child, std::optional<int> events, bool shows) {
  RunProgress progress(shows);
  const Result<ExitStatus> exit_status = run_subprocess(child, [&](std::string_view line) {
    if (events) {
      const std::string whole = std::string(line) + "\n";
      [[maybe_unused]] const ssize_t told = write(*events, whole.data(), whole.size());
    }
    const Result<RunEvent> event = parse_run_event(line, "plan-run");
    if (!event) return complain("plan-run printed: " + std::string(line.substr(0, 200)));
    if (event->kind == RunEvent::Kind::step) {
      progress.show(step_line(event->step, event->of), event->step.step + 1 == event->of);
    } else if (event->kind == RunEvent::Kind::note || event->kind == RunEvent::Kind::checkpoint) {
      progress.print(event->text);
    }
  });
  if (exit_status) progress.wipe();
  return exit_status;
}

Result<CommandResult> without_report(const ExitStatus& exit_status) {
  if (exit_status.interrupted) {
    complain("interrupted before the first step ended: there is no report");
    return CommandResult{"", kInterrupted};
  }
  if (killed_process(exit_status)) {
    complain(fmt::format("plan-run: a process of the run was killed by signal {}",
                         exit_status.exit_code - kSignals));
    return CommandResult{"", kPeerLost};
  }
  if (exit_status.signal != 0) {
    return environment_error("plan-run", fmt::format("killed by signal {}", exit_status.signal),
                             "there is no report; the machine may have run out of memory");
  }
  return CommandResult{"", exit_status.exit_code};  // plan-run reported the reason
}

/// Adds the cheapest plan that would fit to the report of a run that ran out of memory.
void add_relief(const Ready& ready, RunReport& report) {
  const auto available = report.environment.find("memory available");
  if (available == report.environment.end()) return;
  const Bytes there{std::strtod(available->second.c_str(), nullptr)};
  report.reason += "; " + cheapest_relief(ready.resolved.request, ready.candidate.plan, there);
}

Result<CommandResult> with_report(const CommandContext& context, const Ready& ready,
                                  const RunReport& report, const ExitStatus& exit_status) {
  const SimulatedStep simulated = simulate_plan(ready.resolved.request, ready.candidate);
  const std::string text = run_report_to_json(report);
  CommandResult result;
  result.note(write_named(context, "report", text));
  result.note(write_named(context, "trace", run_trace(report, simulated)));
  const bool lost = report.end == RunReport::End::failed && killed_process(exit_status);
  const bool stopped = report.end == RunReport::End::interrupted && exit_status.interrupted;
  result.exit_code = lost ? kPeerLost : stopped ? kInterrupted : exit_status.exit_code;
  result.output = context.json    ? text
                  : context.quiet ? run_summary(report)
                                  : run_text(report, simulated, context.style);
  return result;
}

}  // namespace

Result<CommandResult> run_command(const CommandContext& context) {
  const std::string& path = context.arguments.words.front();
  Result<RunSettings> settings = run_settings_of(context.settings);
  if (!settings) return settings.error();
  const Result<std::optional<Launch>> launch = launch_of(context, *settings);
  if (!launch) return launch.error();
  std::optional<ParentWatch> watch;
  if (*launch && (*launch)->by == "mpi") watch.emplace();
  const bool leads = !*launch || (*launch)->rank == 0;
  const Result<std::optional<int>> events = events_of(context);
  if (!events) return events.error();
  if (const Status ok = check_destinations(context, *settings, leads); !ok) return ok.error();
  Result<PlanFile> file = read_plan_file(path);
  if (!file) return file.error();
  const Result<std::optional<int>> other = ranks_to_replan(context, *launch, file->gpus);
  if (!other) return other.error();
  const Result<std::optional<Ready>> made =
      made_ready(context, path, *std::move(file), settings->backend, *other);
  if (!made) return made.error();
  if (!*made) return CommandResult{"", kOutOfMemory};
  const Ready& ready = **made;

  const Result<TempDir> temp_dir = TempDir::make();
  if (!temp_dir) return temp_dir.error();
  settings->plan = temp_dir->file("plan.json");
  settings->report = temp_dir->file("report.json");
  if (leads) settings->user_report = context.arguments.value("report").value_or("");
  const std::string settings_path = temp_dir->file("settings.json");
  const int ranks = static_cast<int>(ready.candidate.plan.gpus());
  if (*launch) {
    if (const Status fits = check_launch(**launch, ranks); !fits) return fits.error();
  }
  const bool shows = leads && !context.quiet && !context.json;
  Result<std::string> executed = path;
  if (*other && leads) executed = keep_replanned(path, ready, settings->checkpoint_dir, shows);
  if (!executed) return executed.error();
  const Result<Subprocess> child = subprocess_of(*settings, ranks, settings_path);
  if (!child) return child.error();
  settings->events = child->events;
  if (const Status written = write_file(settings->plan, plan_file_to_json(ready.priced)); !written)
    return written.error();
  if (const Status written = write_file(settings_path, run_settings_to_json(*settings)); !written)
    return written.error();

  if (shows && !*other) report_predictions(path, ready);
  if (shows && *launch && (*launch)->by == "mpi") report_kill(ready, *settings);
  const Result<ExitStatus> exit_status = followed(*child, *events, shows);
  if (!exit_status) return exit_status.error();
  if (!leads) return result_of_follower(*exit_status);
  std::error_code ignored;
  if (!std::filesystem::exists(settings->report, ignored)) return without_report(*exit_status);
  Result<RunReport> report = read_run_report(settings->report);
  if (!report) return report.error();
  report->plan_path = *executed;
  add_relief(ready, *report);
  return with_report(context, ready, *report, *exit_status);
}

}  // namespace echelon::cli
