// Builds schedules: compute order → everything a step needs → timed lowering → buffers → Schedule.
#pragma once

#include <vector>

#include "costmodel/schedule/compute_order.hpp"
#include "costmodel/schedule/costs.hpp"

namespace echelon {

/// Sizes of one stage, in whole bytes.
struct StageBytes {
  std::int64_t boundary = 0;       ///< activation sent up, and gradient sent back, to this stage
  std::int64_t saved = 0;          ///< kept from forward to backward, one microbatch
  std::int64_t weight_inputs = 0;  ///< kept from input gradient to weight gradient (ZB-H1)
  std::int64_t parameters = 0;     ///< gathered, one unit
  std::int64_t gradients = 0;      ///< reduced, one bucket
};

/// What a step has to do next to its forwards and backwards.
struct ScheduleSpec {
  PipelineShape shape;
  int units = 1;                         ///< gather units, or gradient buckets, per chunk
  bool reduce_gradients = false;         ///< dp > 1
  bool reduce_every_microbatch = false;  ///< ZeRO-2/3 that keeps no whole gradients
  int gather_slots = 0;  ///< ZeRO-3: gathered units held at a time (2: running and next); 0: none
  bool gather_updated = false;  ///< ZeRO-1/2: parameters gathered after the step
  bool tied_embedding = false;  ///< its gradients are summed over first and last rank
  bool clip = false;            ///< by the norm of all gradients
  int batches_ahead = 2;        ///< microbatches loaded before they are needed
  std::int64_t batch_bytes = 0;
  std::int64_t tied_bytes = 0;
  std::vector<StageBytes> stages;  ///< per stage; empty: no bytes at all
};

/// The lowered schedule. Communications of all ranks are in the order in which they start when the
/// compute order runs against `costs`, so no rank waits for another in a circle
/// (docs/schedules.md). Buffers are placed so that waiting for a free one never delays that
/// timeline. The shape must be legal (compute_order.hpp).
[[nodiscard]] Schedule build_schedule(const ScheduleSpec& spec, const ScheduleCosts& costs);

}  // namespace echelon
