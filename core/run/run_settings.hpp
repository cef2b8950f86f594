// RunSettings: the settings of a run, which `plan run` passes to the program that executes the
// plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/base/units.hpp"
#include "core/run/fault.hpp"

namespace echelon {

/// Whether a run continues from a checkpoint in its checkpoint folder.
enum class Resume {
  no,         ///< a folder with checkpoints is refused
  yes,        ///< a folder without checkpoints is refused; `steps` are counted from the resumed one
  automatic,  ///< where there is one; `steps` are those of the whole training
};

/// Everything a run needs in addition to the plan. Paths are as the user gave them; empty: not
/// requested.
struct RunSettings {
  std::string plan;         ///< plan file
  std::string report;       ///< file for the run report, read by `plan`
  std::string user_report;  ///< that of --report: kept even if `plan` is killed meanwhile
  std::string backend = "cpu";
  std::string launcher = "local";  ///< or "mpi", "env" (core/run/launch.hpp)
  std::int64_t steps = 20;         ///< of this run, or of the training (Resume::automatic)
  std::uint64_t seed = 1;          ///< for initial weights and data order

  std::string data;       ///< token file; default: synthetic tokens
  std::string init_from;  ///< HuggingFace folder
  std::string export_to;  ///< HuggingFace folder, written at the end
  std::string checkpoint_dir;
  std::int64_t checkpoint_every = 0;  ///< steps; 0: only at the end of the run
  std::int64_t keep_last = 2;         ///< newest checkpoints to keep; 0: all
  std::int64_t keep_every = 0;        ///< keeps those of steps that it divides, too; 0: none
  bool async_checkpoints = false;
  Resume resume = Resume::no;

  double learning_rate = 3e-4;  ///< peak
  double min_lr = 3e-5;
  std::int64_t warmup_steps = 0;
  std::int64_t lr_decay_steps = 0;  ///< step that reaches min_lr; 0: the last
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  bool decoupled = true;               ///< AdamW; else Adam with the decay in the gradient
  double lora_alpha = 32;              ///< of adapters, which are scaled by it over their rank
  double max_grad_norm = 1;            ///< gradient norm to clip at; 0: no clipping
  std::int64_t max_skipped_steps = 3;  ///< in a row, for gradients that are NaN or infinite
  std::int64_t noise_every = 10;       ///< steps between estimates of the gradient noise; 0: never

  std::optional<int> events;       ///< file descriptor for one JSON object per line
  int cores = 0;                   ///< cores this run may use; 0: all
  std::optional<Seconds> timeout;  ///< longest wait for a peer; default: from the prediction

  std::string flight_recorder;  ///< folder for what each rank did last (core/run/flight_record.hpp)
  std::vector<InjectedFault> inject;  ///< faults to commit on purpose

  bool operator==(const RunSettings&) const = default;
};

[[nodiscard]] std::string run_settings_to_json(const RunSettings& settings);
[[nodiscard]] Result<RunSettings> parse_run_settings(std::string_view json, std::string_view where);

}  // namespace echelon
