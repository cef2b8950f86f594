// What the software behind a measured run does when its table does not say: part of the table of
// the framework that stands for it (core/framework/framework.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/base/units.hpp"
#include "core/plan/parallel_plan.hpp"

namespace echelon {

/// How layers are dealt to pipeline stages when a table does not give it.
enum class StageSplit {
  balanced,         ///< as equally as can be
  ends_hold_fewer,  ///< the first and the last stage one layer fewer, where that makes the rest
                    ///< equal
  by_cost,          ///< by cost of layers and head: late stages may stay empty
};

/// What an unknown software does by evidence; one framework stands for each kind.
enum class Evident {
  nothing,           ///< the software is known by its name
  splits_model,      ///< tp, pp or ep > 1
  splits_optimizer,  ///< ZeRO-1 or ZeRO-2 alone
  splits_data,       ///< anything else
};

/// A revision of a software, identified by the numbers of the jobs that ran it: the passes whose
/// collectives keep their full-sequence tensors (Framework::pending_collective_buffers).
struct Revision {
  std::int64_t first_job = 0;
  int held_without_pipeline = 0;  ///< 2: those of a forward and of the backward before it
  int held_with_pipeline = 0;
};

/// Bounds that separate odd rows of a published sweep from ordinary ones.
struct SweepBounds {
  Bytes gpu_memory;           ///< of the GPUs it ran on
  double bytes_per_hidden;    ///< activations of a layer, per token and unit of the hidden width
  double bytes_per_ffn;       ///< … and of the MLP width
  double bytes_per_logit;     ///< alive on a single stage
  double bytes_per_gathered;  ///< per token and unit of the hidden width where tp > 1
  FlopsPerSecond rate;        ///< what any sound run reaches
  Seconds layer;              ///< least time of a layer, forward and backward
  double collectives;         ///< of a layer, forward and backward
  Seconds hop, slow_hop;      ///< of one rank of a collective, on a healthy and on a slow network
};

/// One software as tables of measured runs name it, and its defaults.
struct FrameworkDefaults {
  std::string_view software;  ///< as the column `stack` writes it; "": a software nobody described
  /// What the names of its relatives share, forks and releases of the years given.
  std::string_view family = "";
  int first_year = 0, last_year = 0;
  std::string_view detail = "";  ///< only rows whose `framework_detail` or `locator` mentions this
  std::string_view since = "";   ///< only rows of this month (column `date`) or later
  Evident evident = Evident::nothing;  ///< of a software nobody described
  bool same_code = true;               ///< the framework is that software; false: the nearest one
  std::string_view why = "";           ///< one line: why that framework
  Recompute recompute = Recompute::none;
  bool flash_attention = true;
  int zero = 0;
  double dropout = 0;               ///< hidden and attention dropout of its GPT recipes
  std::string_view precision = "";  ///< recipe; "": the framework's own
  /// Its recipes are tuned for speed: 16-bit gradient buffers, fp8 primary weights, and 16-bit
  /// moments for models with latent attention (evaluation/run_states.hpp).
  bool tuned_recipes = false;
  std::optional<double> logits_bytes{};  ///< alive per logit in this release, if it has its own
  std::optional<double> compiled_logits_bytes{};  ///< … of its compiled loss
  bool whole_logits = false;       ///< its loss takes all logits on every tensor-parallel rank
  bool accumulates_whole = false;  ///< Framework::accumulates_whole, where microbatches are several
  /// What `precision_detail` mentions when an fp32 accumulator lies next to 16-bit gradients.
  std::string_view fp32_accumulator = "";
  StageSplit split = StageSplit::balanced;
  /// What `notes` mention when a stage that exactly reaches its share takes one layer more.
  std::string_view tie_stays = "";
  std::span<const Revision> revisions{};  ///< rising by first_job; empty: one revision
  /// Its logs print the memory of rank 0, which is on the first stage; else the largest rank's.
  bool memory_of_first_rank = false;
  bool grade_c_memory_is_sound = false;         ///< grade C doubts its step times alone
  const SweepBounds* bounds = nullptr;          ///< of its published sweep; null: none
  std::string_view not_priced_on_one_gpu = "";  ///< why; "": priced
};

}  // namespace echelon
