// A plan as the configuration of another framework.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "interop/configs/import.hpp"

namespace echelon {

/// A field that the format cannot express.
struct Inexpressible {
  ConfigField field;
  std::string wanted;   ///< value of the plan
  std::string instead;  ///< what the written configuration would run
  /// Of a value that the format has no settings for: what the nearest, `instead`, has instead.
  std::string nearest{};
  std::string why{};  ///< the reason, where the framework could run the value; several fields' one
};

struct ExportedConfig {
  std::string text;                   ///< of the file
  std::string arguments;              ///< of a command line: what stands behind the program
  std::vector<std::string> comments;  ///< of the file: version, size, notes, what is lost
  std::vector<std::string> notes;  ///< what the user fills in, what is set in code, what it needs
  std::string environment;         ///< lines of a script, in front of the program
  std::vector<Inexpressible> lost;
  ParallelPlan as_read{};  ///< the plan that the file states, as the format reads it
};

/// Writes the run, reads what was written, and lists the fields that came back differently: so the
/// table alone decides what a format can express. All fields of the model are compared, with or
/// without a row, where the file states the model. `config.gpus_per_node` > 0.
[[nodiscard]] ExportedConfig export_config(const ConfigFormat& format, const RunConfig& config);

/// Whether it is a field of the model: no other plan changes it.
[[nodiscard]] bool is_of_model(const ConfigField& field);

/// Whether the field's value changes the run: the kind of context parallelism does not without it,
/// the context length only with a table of positions, constants only where they are known …
[[nodiscard]] bool has_effect(const ConfigField& field, const RunConfig& config);

/// What starts the program on all nodes: "slurm" (a batch script with srun and torchrun), "mpirun"
/// (one process per GPU), "kubernetes" (a JobSet whose pods run torchrun).
[[nodiscard]] const std::vector<std::string_view>& launchers();
/// The job that trains with `exported` on the GPUs of `config`. `segment`: nodes that share an
/// NVLink domain, a divisor of the nodes, which Slurm is asked to place so; 0: any. Error: a format
/// whose program torchrun does not start.
[[nodiscard]] Result<std::string> launch_job(std::string_view launcher, const ConfigFormat& format,
                                             const RunConfig& config,
                                             const ExportedConfig& exported, int segment);
/// The same for plan-run, which executes the plan file `plan`, with one process per GPU. Kubernetes
/// starts it as an MPIJob.
[[nodiscard]] std::string launch_plan_run(std::string_view launcher, const RunConfig& config,
                                          const std::string& plan, int segment);

}  // namespace echelon
