// RunSettings: how a plan is to be run; what `plan run` tells the program that executes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/result.hpp"
#include "core/base/units.hpp"

namespace echelon {

/// Everything a run needs beside the plan. Paths are as given; empty: not asked for.
struct RunSettings {
  std::string plan;    ///< plan file
  std::string report;  ///< where the run report goes
  std::string backend = "cpu";
  std::string launcher = "local";  ///< or "mpi", "env" (core/run/launch.hpp)
  std::int64_t steps = 20;         ///< to run, counted from the one resumed from
  std::uint64_t seed = 1;          ///< of initial weights and the order of data

  std::string data;       ///< tokens; synthetic without it
  std::string init_from;  ///< HuggingFace folder
  std::string export_to;  ///< HuggingFace folder, written at the end
  std::string checkpoint_dir;
  std::int64_t checkpoint_every = 0;  ///< steps; 0: only when the run ends
  bool resume = false;

  double learning_rate = 3e-4;  ///< peak
  double min_lr = 3e-5;
  std::int64_t warmup_steps = 0;
  std::int64_t lr_decay_steps = 0;  ///< step at which min_lr is reached; 0: the last of this run
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  bool decoupled = true;          ///< AdamW; else Adam with the decay in the gradient
  double max_grad_norm = 1;       ///< gradient norm to clip at; 0: no clipping
  std::int64_t noise_every = 10;  ///< steps between estimates of the gradient noise; 0: never

  int events = -1;                 ///< file descriptor for one JSON object per line; -1: none
  int cores = 0;                   ///< this run may use; 0: all
  std::optional<Seconds> timeout;  ///< longest wait for a peer; from the prediction without it

  bool operator==(const RunSettings&) const = default;
};

[[nodiscard]] std::string run_settings_to_json(const RunSettings& settings);
[[nodiscard]] Result<RunSettings> parse_run_settings(std::string_view json, std::string_view where);

}  // namespace echelon
