// plan-run SETTINGS.json: executes a plan. `plan run` writes the settings and tells people what
// comes out; with the launcher "env" it is one process of several that somebody else started.
// plan-run --measure OUT.json: times this machine for `plan calibrate`, --measure-gpus its GPUs;
// under mpirun,
// plan-run --measure-between OUT.json CORES: collectives between processes of so many cores each.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "core/base/files.hpp"
#include "core/run/launch.hpp"
#include "runtime/cuda_plugin.hpp"
#include "runtime/measure/machine.hpp"
#include "runtime/measure/parts.hpp"
#include "runtime/mpi/processes.hpp"
#include "runtime/tcp/world.hpp"
#include "runtime/training/run.hpp"

namespace {

using namespace echelon;

volatile std::sig_atomic_t interrupted = 0;

/// The first signal ends the run after its step, the second at once.
void on_signal(int signal) {
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
  /// What to connect the ranks with; nothing: all of them are here.
  [[nodiscard]] Status connect(const PlanFile& plan, const RunSettings& settings,
                               RunSurroundings& around) const {
    if (has_mpi()) around.connect = mpi::world;
    if (!env_) return Done{};
    const Status fits = check_launch(launch_, static_cast<int>(plan.plan.gpus()));
    if (!fits) return fits;
    around.connect = [meeting = meeting_of(plan, settings, launch_)](
                         Crew& crew, const ParallelPlan& degrees, const ModelSpec& model) {
      return tcp::world(crew, degrees, model, meeting);
    };
    return Done{};
  }
  /// Under mpirun what fails on all processes is told by the first, which ends the others
  /// meanwhile.
  [[nodiscard]] int fail(const Error& error) const {
    if (leads()) return ::fail(error);
    give_way();
    Error of_rank = error;
    of_rank.where = "rank " + std::to_string(rank_) + ": " + error.where;
    return ::fail(of_rank);
  }
  void tell_failure(const std::string& reason) const {
    if (leads()) return;  // it has the report
    give_way();
    std::fprintf(stderr, "plan-run: rank %d: %s\n", rank_, reason.c_str());
  }
  /// The way out; `together`: all processes come here with this exit code.
  [[nodiscard]] int leave(int exit_code, bool together) const {
    if (!has_mpi()) return exit_code;
    if (!together) mpi::abort(exit_code);
    try {
      mpi::finish(kEnd);
    } catch (const RunFailure& failure) {
      tell_failure(failure.what());
      mpi::abort(exit_code_of(failure.kind()));
    }
    return exit_code;
  }

 private:
  static constexpr Seconds kEnd{60};
  void give_way() const {
    if (has_mpi()) std::this_thread::sleep_for(std::chrono::seconds(2));
  }
  static tcp::Meeting meeting_of(const PlanFile& plan, const RunSettings& settings,
                                 const Launch& launch) {
    tcp::Meeting meeting;
    meeting.rank = launch.rank;
    meeting.size = launch.size;
    meeting.address = launch.master_address;
    meeting.port = launch.master_port;
    meeting.run = launch.run;
    PlanFile executed = plan;  // prices differ from machine to machine
    executed.predicted = {};
    executed.cluster_hash.clear();
    executed.calibration.clear();
    executed.calibration_path.clear();
    executed.calibration_hash.clear();
    executed.assumptions.clear();
    meeting.plan = plan_file_to_json(executed);
    RunSettings common = settings;
    common.plan.clear();
    common.report.clear();
    common.events = -1;
    common.cores = 0;
    common.deadline.reset();
    meeting.settings = run_settings_to_json(common);
    if (settings.deadline) meeting.limit = *settings.deadline;
    meeting.interrupted = &interrupted;
    return meeting;
  }
  std::string launcher_;
  bool env_ = false;
  Launch launch_;
  int rank_ = 0;
};

int run(const RunSettings& settings, const Part& part) {
  const Result<PlanFile> plan = read_plan_file(settings.plan);
  if (!plan) return part.leave(part.fail(plan.error()), false);
  RunSurroundings around;
  around.launcher = part.launcher();
  if (const Status ready = part.connect(*plan, settings, around); !ready) {
    return part.leave(part.fail(ready.error()), false);
  }
  around.interrupted = &interrupted;
  around.cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  around.tell = [&](const RunEvent& event) {
    if (settings.events < 0 || !part.leads()) return;
    const std::string line = to_line(event);
    [[maybe_unused]] const ssize_t told = write(settings.events, line.data(), line.size());
  };
  const Result<RunReport> report = run_plan(*plan, settings, around);
  if (!report) return part.leave(part.fail(report.error()), false);
  const bool together = !report->environment.contains("failure");
  if (part.leads()) {
    const Status written = write_file(settings.report, run_report_to_json(*report));
    if (!written) return part.leave(part.fail(written.error()), false);
  } else if (!together) {
    part.tell_failure(report->reason);
  }
  return part.leave(exit_code_of(*report), together);
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

void tell_measuring(const std::string& what) {
  const std::string line =
      to_line({.kind = RunEvent::Kind::note, .step = {}, .of = 0, .text = what});
  constexpr int kEvents = 3;  // cli/child.hpp
  [[maybe_unused]] const ssize_t told = write(kEvents, line.data(), line.size());
}

int write_measurements(const std::string& path, const Measurements& measured) {
  const Status written = write_file(path, measurements_to_json(measured));
  return written ? 0 : fail(written.error());
}

int measure(const std::string& path) {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return write_measurements(path, {measure_machine(cores, tell_measuring)});
}

/// GPUs, and the executor's own time with a rank for each.
int measure_accelerators(const std::string& path) {
  try {
    Result<Measurements> measured = measure_gpus(tell_measuring);
    if (!measured) return fail(measured.error());
    tell_measuring("the executor");
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
  if (!times) {
    std::signal(SIGINT, on_signal);
    std::signal(SIGTERM, on_signal);
    std::signal(SIGUSR1, on_signal);  // what mpirun passes on
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
