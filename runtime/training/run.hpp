// A whole run: plan and settings in, report out.
#pragma once

#include <csignal>
#include <functional>
#include <string>

#include "core/plan/plan_file.hpp"
#include "core/run/run_event.hpp"
#include "core/run/run_report.hpp"
#include "core/run/run_settings.hpp"
#include "runtime/backend/cuda_plugin.hpp"
#include "runtime/comm/world.hpp"
#include "runtime/io/weights/disk.hpp"
#include "runtime/threads/run_threads.hpp"

namespace echelon {

/// RunContext::interrupted when the program that started this process has died.
inline constexpr std::sig_atomic_t kOrphaned = -1;

/// The environment of a run.
struct RunContext {
  /// Connects the ranks of this process with all others; called once, before the first step.
  std::function<Result<std::unique_ptr<World>>(RunThreads&, const ParallelPlan&, const ModelSpec&)>
      connect = thread_world;
  std::string launcher = "local";  ///< for the report
  /// Opens the CUDA backend on that world, whose GroupRole::control remains in use.
  std::function<Result<std::unique_ptr<Backend<Bfloat16>>>(RunThreads&, std::unique_ptr<World>,
                                                           const PlanFile&)>
      cuda = load_cuda_backend;
  std::function<void(const RunEvent&)> notify = [](const RunEvent&) {};
  /// A run on GPUs failed. What follows frees their memory, which waits for work that may never
  /// end.
  std::function<void(const RunReport&)> gpus_failed = [](const RunReport&) {};
  /// Set by a signal: the run ends after its current step, with a checkpoint if one was requested;
  /// on kOrphaned in one of several processes as a run that has lost this process.
  const volatile std::sig_atomic_t* interrupted = nullptr;
  int cores = 1;   ///< of this machine; its ranks share them
  Disk disk = {};  ///< for checkpoints and exports
  /// Changes a byte of the next message that this process sends; null: it sends none itself.
  std::function<void()> corrupt_message;
};

/// Executes the plan. The report is complete for the process of rank 0, however the run ended;
/// errors are returned before the first step: an unsupported model, axis or format, a program that
/// does not fit the plan or fails the check, unreadable data or weights, no checkpoint to resume
/// from.
[[nodiscard]] Result<RunReport> run_plan(const PlanFile& plan, const RunSettings& settings,
                                         const RunContext& context);

/// Exit code of a report: 0, or what docs/cli.md says of runs that failed.
[[nodiscard]] int exit_code_of(const RunReport& report);

/// The features that this runtime does not execute on `backend`, as an error; nothing if it
/// executes the plan.
[[nodiscard]] Status check_executable(const PlanFile& plan, std::string_view backend);

}  // namespace echelon
