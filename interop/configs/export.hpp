// A plan as the configuration of another framework.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "interop/configs/import.hpp"

namespace echelon {

/// A field that the format cannot express.
struct Inexpressible {
  RunField field;
  std::string wanted;   ///< value of the plan
  std::string instead;  ///< what the written configuration would run
};

struct ExportedConfig {
  std::string text;
  std::vector<std::string> notes;  ///< what the user fills in, what is set in code
  std::vector<Inexpressible> lost;
};

/// Writes the run, reads what was written, and lists the fields that came back differently: so the
/// table alone decides what a format can express. Shapes of the model are compared only where the
/// format states them. `config.gpus_per_node` > 0.
[[nodiscard]] ExportedConfig export_config(const ConfigFormat& format, const RunConfig& config);

/// A launcher around a configuration: "slurm", "mpirun", "kubernetes".
[[nodiscard]] const std::vector<std::string_view>& launchers();
/// The job that starts `format`'s program on the run's GPUs: a batch script of Slurm with srun and
/// torchrun, a JobSet of Kubernetes with torchrun's variables. `command` is the program with its
/// arguments.
[[nodiscard]] std::string launch_script(std::string_view launcher, const RunConfig& config,
                                        const std::string& command);
/// The command that starts plan-run with one process per GPU.
[[nodiscard]] std::string plan_run_script(std::string_view launcher, const RunConfig& config);

/// The program and its arguments for one node, without the launcher's options.
[[nodiscard]] std::string training_command(const ConfigFormat& format, const ExportedConfig& config,
                                           const std::string& file);

}  // namespace echelon
