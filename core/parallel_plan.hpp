// ParallelPlan: one complete answer to "how is the job laid out over the GPUs".
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/result.hpp"

namespace echelon {

enum class Recompute { none, selective, full };
enum class ScheduleKind { gpipe, one_f_one_b, interleaved, zero_bubble_h1 };

[[nodiscard]] std::string_view name_of(Recompute recompute);
[[nodiscard]] std::string_view name_of(ScheduleKind schedule);
[[nodiscard]] Result<Recompute> parse_recompute(std::string_view name, std::string_view where);
[[nodiscard]] Result<ScheduleKind> parse_schedule(std::string_view name, std::string_view where);

/// Degrees per axis, and every choice that changes memory or time. gpus = tp·cp·dp·pp.
struct ParallelPlan {
  int tp = 1;
  int cp = 1;
  int ep = 1;
  int etp = 1;
  int dp = 1;
  int pp = 1;
  int vpp = 1;         ///< model chunks per rank; > 1 only with the interleaved schedule
  int microbatch = 1;  ///< samples per forward pass of one rank
  int zero = 0;        ///< 0..3
  int shard_group = 1; ///< ranks over which ZeRO state is split (divides dp); = dp unless hybrid
  bool sequence_parallel = false;
  Recompute recompute = Recompute::none;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  std::vector<int> layers_per_stage;   ///< size pp; layers of all chunks of that rank
  std::vector<int> recompute_layers;   ///< size pp; layers whose whole block is recomputed (full)
  bool overlap_dp = true;  ///< gradient reduction and parameter gather run beside compute
  bool overlap_tp = false; ///< tensor-parallel collectives are split and run beside their GEMMs
  bool overlap_pp = false; ///< pipeline sends run beside compute

  bool operator==(const ParallelPlan&) const = default;

  [[nodiscard]] std::int64_t gpus() const { return std::int64_t{tp} * cp * dp * pp; }
  /// Microbatches per step and data-parallel rank. `check_plan` demands that the division is exact;
  /// rounding up serves measured runs of stacks that pad the last one.
  [[nodiscard]] std::int64_t microbatches_rounded_up(std::int64_t global_batch) const {
    const std::int64_t samples = std::int64_t{dp} * microbatch;
    return (global_batch + samples - 1) / samples;
  }
};

}  // namespace echelon
