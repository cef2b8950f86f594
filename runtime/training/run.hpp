// A whole run: plan and settings in, report out.
#pragma once

#include <csignal>
#include <functional>
#include <string>

#include "core/plan/plan_file.hpp"
#include "core/run/run_event.hpp"
#include "core/run/run_report.hpp"
#include "core/run/run_settings.hpp"
#include "runtime/crew.hpp"
#include "runtime/cuda_plugin.hpp"
#include "runtime/world.hpp"

namespace echelon {

/// What a run needs from around it.
struct RunSurroundings {
  /// Connects the ranks of this process with all others; called once, before the first step.
  std::function<Result<std::unique_ptr<World>>(Crew&, const ParallelPlan&, const ModelSpec&)>
      connect = thread_world;
  std::string launcher = "local";  ///< for the report
  /// Opens the CUDA backend on top of that world, whose Line::host it keeps.
  std::function<Result<std::unique_ptr<Backend<Bfloat16>>>(Crew&, std::unique_ptr<World>,
                                                           const PlanFile&)>
      cuda = load_cuda_backend;
  std::function<void(const RunEvent&)> tell = [](const RunEvent&) {};
  /// Set by a signal: the run ends after its step, with a checkpoint where one was asked for.
  const volatile std::sig_atomic_t* interrupted = nullptr;
  int cores = 1;  ///< of this machine; its ranks share them
};

/// Trains as the plan says. The report is complete for the process that has rank 0, whatever ended
/// the run; Errors are told before the first step: a model, axis or format that is not executed, a
/// program that does not fit the plan or is not sound, data or weights that cannot be read, no
/// checkpoint to resume from.
[[nodiscard]] Result<RunReport> run_plan(const PlanFile& plan, const RunSettings& settings,
                                         const RunSurroundings& around);

/// Exit code of a report: 0, or what docs/cli.md says of runs that failed.
[[nodiscard]] int exit_code_of(const RunReport& report);

/// What this runtime does not execute on `backend`, as an error; nothing when it does.
[[nodiscard]] Status check_executable(const PlanFile& plan, std::string_view backend);

}  // namespace echelon
