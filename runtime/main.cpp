// plan-run SETTINGS.json: executes a plan. `plan run` writes the settings and tells people what
// comes out. plan-run --measure OUT.json: times this machine for `plan calibrate`.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <thread>

#include "core/files.hpp"
#include "runtime/measure/machine.hpp"
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

int run(const std::string& path) {
  constexpr std::int64_t kLongest = 1 << 20;
  const Result<std::string> text = read_file(path, kLongest);
  if (!text) return fail(text.error());
  const Result<RunSettings> settings = parse_run_settings(*text, path);
  if (!settings) return fail(settings.error());
  const Result<PlanFile> plan = read_plan_file(settings->plan);
  if (!plan) return fail(plan.error());
  RunSurroundings around;
  around.interrupted = &interrupted;
  around.cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  around.tell = [&](const RunEvent& event) {
    if (settings->events < 0) return;
    const std::string line = to_line(event);
    [[maybe_unused]] const ssize_t told = write(settings->events, line.data(), line.size());
  };
  const Result<RunReport> report = run_plan(*plan, *settings, around);
  if (!report) return fail(report.error());
  if (const Status written = write_file(settings->report, run_report_to_json(*report)); !written)
    return fail(written.error());
  return exit_code_of(*report);
}

int measure(const std::string& path) {
  const auto tell = [](const std::string& what) {
    const std::string line =
        to_line({.kind = RunEvent::Kind::note, .step = {}, .of = 0, .text = what});
    constexpr int kEvents = 3;  // cli/child.hpp
    [[maybe_unused]] const ssize_t told = write(kEvents, line.data(), line.size());
  };
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const std::string text = measurements_to_json(measure_machine(cores, tell));
  const Status written = write_file(path, text);
  return written ? 0 : fail(written.error());
}

}  // namespace

int main(int argc, char** argv) {
  const bool measures = argc == 3 && std::string_view(argv[1]) == "--measure";
  if (argc != 2 && !measures) {
    std::fprintf(stderr, "plan-run: expected a file of settings; use `plan run PLAN.json`\n");
    return 2;
  }
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return measures ? measure(argv[2]) : run(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plan-run: unexpected: %s\n", error.what());
    return 70;
  }
}
