// plan-run SETTINGS.json: executes a plan. `plan run` writes the settings and presents the results;
// with the launcher "env" this is one of several processes that srun, torchrun or mpirun started.
// plan-run --measure OUT.json: times this machine for `plan calibrate`, --measure-gpus its GPUs;
// under mpirun, plan-run --measure-between OUT.json CORES: collectives between processes with this
// many cores each.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "core/base/files.hpp"
#include "core/run/launch.hpp"
#include "runtime/backend/cuda_plugin.hpp"
#include "runtime/comm/mpi/processes.hpp"
#include "runtime/comm/tcp/run_token.hpp"
#include "runtime/comm/tcp/world.hpp"
#include "runtime/measure/machine.hpp"
#include "runtime/measure/parts.hpp"
#include "runtime/training/run.hpp"

namespace {

using namespace echelon;

volatile std::sig_atomic_t interrupted = 0;
volatile std::sig_atomic_t orphaned = 0;
/// Of `plan`, which sends a signal when it dies (PR_SET_PDEATHSIG).
pid_t parent = 0;

/// The first signal ends the run after its step, the second at once. That `plan` has died is no
/// second request: mpirun kills it a second after its own SIGTERM.
void on_signal(int signal) {
  if (orphaned == 0 && getppid() != parent) {
    orphaned = 1;
    if (interrupted == 0) interrupted = kOrphaned;
    return;
  }
  if (interrupted != 0) _exit(128 + signal);
  interrupted = signal;
}

int fail(const Error& error) {
  std::fprintf(stderr, "plan-run: %s\n", error.message().c_str());
  return error.kind == Error::Kind::input ? 2 : 3;
}

/// This process among those of the run.
class Part {
 public:
  /// Error: MPI does not start, or there is no launcher.
  static Result<Part> join(const RunSettings& settings) {
    Part part;
    part.launcher_ = settings.launcher;
    if (settings.launcher == "mpi") {
      const Result<mpi::Place> place = mpi::start();
      if (!place) return place.error();
      part.rank_ = place->rank;
    } else if (settings.launcher == "env") {
      const Result<std::optional<Launch>> launch = find_launch(environment_of(environ));
      if (!launch) return launch.error();
      if (!*launch) return no_launch_error("plan-run");
      part.launch_ = **launch;
      part.launcher_ = part.launch_.by;
      part.rank_ = part.launch_.rank;
      part.env_ = true;
    }
    return part;
  }
  [[nodiscard]] bool leads() const { return rank_ == 0; }
  /// Under mpirun, which ends all processes when one of them calls abort().
  [[nodiscard]] bool has_mpi() const { return launcher_ == "mpi" && !env_; }
  [[nodiscard]] const std::string& launcher() const { return launcher_; }
  /// Sets how the ranks are connected, unless all of them are in this process.
  [[nodiscard]] Status connect(const PlanFile& plan, const RunSettings& settings,
                               RunContext& context) const {
    if (has_mpi()) context.connect = mpi::world;
    if (!env_) return Done{};
    const Status fits = check_launch(launch_, static_cast<int>(plan.plan.gpus()));
    if (!fits) return fits;
    const auto corrupt = std::make_shared<std::atomic<bool>>(false);
    context.corrupt_message = [corrupt] { *corrupt = true; };
    context.connect = [rendezvous = rendezvous_of(plan, settings, launch_, corrupt)](
                          RunThreads& run_threads, const ParallelPlan& degrees,
                          const ModelSpec& model) {
      return tcp::world(run_threads, degrees, model, rendezvous);
    };
    return Done{};
  }
  /// Under mpirun a failure of all processes is reported by the first, which ends the others
  /// meanwhile.
  [[nodiscard]] int fail(const Error& error) const {
    if (leads()) return ::fail(error);
    give_way();
    Error of_rank = error;
    of_rank.where = "rank " + std::to_string(rank_) + ": " + error.where;
    return ::fail(of_rank);
  }
  void report_failure(const std::string& reason) const {
    if (leads()) return;  // it has the report
    give_way();
    std::fprintf(stderr, "plan-run: rank %d: %s\n", rank_, reason.c_str());
  }
  /// Exits; `together`: all processes exit with this code.
  [[nodiscard]] int exit_with(int exit_code, bool together) const {
    if (!has_mpi()) return exit_code;
    if (!together) mpi::abort(exit_code);
    try {
      mpi::finish(kEnd);
    } catch (const RunFailure& failure) {
      report_failure(failure.what());
      mpi::abort(exit_code_of(failure.kind()));
    }
    return exit_code;
  }

 private:
  static constexpr Seconds kEnd{60};
  void give_way() const {
    // Longer than mpirun lets its other processes live (kSecondsToReport of `plan run`).
    if (has_mpi()) std::this_thread::sleep_for(std::chrono::seconds(6));
  }
  static tcp::Rendezvous rendezvous_of(const PlanFile& plan, const RunSettings& settings,
                                       const Launch& launch,
                                       std::shared_ptr<std::atomic<bool>> corrupt) {
    tcp::Rendezvous rendezvous;
    rendezvous.corrupt = std::move(corrupt);
    const char* const token = std::getenv(tcp::kTokenVariable);
    rendezvous.token = token == nullptr ? "" : token;
    rendezvous.rank = launch.rank;
    rendezvous.size = launch.size;
    rendezvous.address = launch.master_address;
    rendezvous.port = launch.master_port;
    rendezvous.run = launch.run;
    PlanFile executed = plan;  // prices differ from machine to machine
    executed.predicted = {};
    executed.cluster_hash.clear();
    executed.calibration.clear();
    executed.calibration_path.clear();
    executed.calibration_hash.clear();
    executed.assumptions.clear();
    rendezvous.plan = plan_file_to_json(executed);
    RunSettings common = settings;
    common.plan.clear();
    common.report.clear();
    common.user_report.clear();
    common.events.reset();
    common.cores = 0;
    common.timeout.reset();
    rendezvous.settings = run_settings_to_json(common);
    if (settings.timeout) rendezvous.limit = *settings.timeout;
    rendezvous.interrupted = &interrupted;
    return rendezvous;
  }
  std::string launcher_;
  bool env_ = false;
  Launch launch_;
  int rank_ = 0;
};

Status write_report(const RunSettings& settings, const RunReport& report) {
  Status written = write_file(settings.report, run_report_to_json(report));
  if (written && interrupted != 0 && !settings.user_report.empty())
    written = write_file(settings.user_report, run_report_to_json(report));
  return written;
}

/// Ends a failed run whose GPUs do not end their work, so that a launcher learns of it.
void end_if_stuck(const RunSettings& settings, const Part& part, const RunReport& report) {
  std::thread([&settings, &part, report] {
    std::this_thread::sleep_for(std::chrono::seconds(60));
    if (part.leads()) {
      static_cast<void>(write_report(settings, report));
    } else {
      part.report_failure(report.reason);
    }
    std::_Exit(exit_code_of(report));
  }).detach();
}

int run(const RunSettings& settings, const Part& part) {
  const Result<PlanFile> plan = read_plan_file(settings.plan);
  if (!plan) return part.exit_with(part.fail(plan.error()), false);
  RunContext context;
  context.launcher = part.launcher();
  if (const Status ready = part.connect(*plan, settings, context); !ready) {
    return part.exit_with(part.fail(ready.error()), false);
  }
  context.interrupted = &interrupted;
  context.cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  context.notify = [&](const RunEvent& event) {
    if (!settings.events || !part.leads()) return;
    const std::string line = to_line(event);
    [[maybe_unused]] const ssize_t written = write(*settings.events, line.data(), line.size());
  };
  context.gpus_failed = [&](const RunReport& report) { end_if_stuck(settings, part, report); };
  const Result<RunReport> report = run_plan(*plan, settings, context);
  if (!report) return part.exit_with(part.fail(report.error()), false);
  const bool together = !report->environment.contains("failure");
  if (part.leads()) {
    const Status written = write_report(settings, *report);
    if (!written) return part.exit_with(part.fail(written.error()), false);
  } else if (!together) {
    part.report_failure(report->reason);
  }
  return part.exit_with(exit_code_of(*report), together);
}

int run(const std::string& path) {
  constexpr std::int64_t kLongest = 1 << 20;
  const Result<std::string> text = read_file(path, kLongest);
  if (!text) return fail(text.error());
  const Result<RunSettings> settings = parse_run_settings(*text, path);
  if (!settings) return fail(settings.error());
  const Result<Part> part = Part::join(*settings);
  if (!part) return fail(part.error());
  return run(*settings, *part);
}

void log_progress(const std::string& what) {
  const std::string line =
      to_line({.kind = RunEvent::Kind::note, .step = {}, .of = 0, .text = what});
  constexpr int kEvents = 3;  // cli/system/subprocess.hpp
  [[maybe_unused]] const ssize_t written = write(kEvents, line.data(), line.size());
}

int write_measurements(const std::string& path, const Measurements& measured) {
  const Status written = write_file(path, measurements_to_json(measured));
  return written ? 0 : fail(written.error());
}

int measure(const std::string& path) {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return write_measurements(path, {measure_machine(cores, log_progress)});
}

/// GPUs, and the executor's own time with a rank for each.
int measure_accelerators(const std::string& path) {
  try {
    Result<Measurements> measured = measure_gpus(log_progress);
    if (!measured) return fail(measured.error());
    log_progress("the executor");
    for (Measurement& one : measure_host(measured->gpu->gpus, 1)) {
      measured->all.push_back(std::move(one));
    }
    return write_measurements(path, *measured);
  } catch (const RunFailure& failure) {
    std::fprintf(stderr, "plan-run: %s\n", failure.what());
    return exit_code_of(failure.kind());
  }
}

/// As measure(), of all processes of mpirun together; the first one writes.
int measure_between(const std::string& path, int cores) {
  const Result<mpi::Place> place = mpi::start();
  if (!place) return fail(place.error());
  try {
    const std::vector<Measurement> all = measure_collectives_of_processes(place->processes, cores);
    if (place->rank == 0) {
      if (const int failed = write_measurements(path, {all}); failed != 0) mpi::abort(failed);
    }
    mpi::finish(Seconds{60});
  } catch (const RunFailure& failure) {
    std::fprintf(stderr, "plan-run: rank %d: %s\n", place->rank, failure.what());
    mpi::abort(exit_code_of(failure.kind()));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool measures = argc == 3 && std::string_view(argv[1]) == "--measure";
  const bool gpus = argc == 3 && std::string_view(argv[1]) == "--measure-gpus";
  const bool between = argc == 4 && std::string_view(argv[1]) == "--measure-between";
  const bool times = measures || gpus || between;
  if (argc != 2 && !times) {
    std::fprintf(stderr, "plan-run: expected a file of settings; use `plan run PLAN.json`\n");
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  parent = getppid();
  if (!times) {
    std::signal(SIGHUP, on_signal);
    std::signal(SIGINT, on_signal);
    std::signal(SIGTERM, on_signal);
    std::signal(SIGUSR1, on_signal);  // the signal that mpirun forwards
  }
  try {
    if (between) return measure_between(argv[2], std::max(1, std::atoi(argv[3])));
    if (gpus) return measure_accelerators(argv[2]);
    return measures ? measure(argv[2]) : run(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plan-run: unexpected: %s\n", error.what());
    return 70;
  }
}
