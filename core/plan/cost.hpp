// Named parts of a prediction. The parts are all there is: total() is their sum.
#pragma once

#include <array>
#include <string_view>

#include "core/base/units.hpp"

namespace echelon {

/// Where a number comes from; a prediction is no better than its weakest rate.
enum class Evidence { measured, calibrated, extrapolated };
[[nodiscard]] std::string_view name_of(Evidence evidence);

/// Peak device memory of one pipeline stage (every rank of the stage holds the same).
struct MemoryBreakdown {
  Bytes weights;
  Bytes gradients;
  Bytes optimizer;      ///< master weights and Adam moments
  Bytes activations;    ///< saved for backward, all microbatches in flight, logits and loss
  Bytes workspace;      ///< transient tensors of the running layer, GEMM workspace
  Bytes communication;  ///< gather and bucket buffers, NCCL's own buffers
  Bytes context;        ///< CUDA context and loaded libraries

  [[nodiscard]] Bytes total() const {
    return weights + gradients + optimizer + activations + workspace + communication + context;
  }
  bool operator==(const MemoryBreakdown&) const = default;
};

/// The parts by what files and messages call them.
struct NamedMemory {
  std::string_view name;
  Bytes MemoryBreakdown::*part;
};
inline constexpr std::array<NamedMemory, 7> kMemoryParts = {
    {{"weights", &MemoryBreakdown::weights},
     {"gradients", &MemoryBreakdown::gradients},
     {"optimizer", &MemoryBreakdown::optimizer},
     {"activations", &MemoryBreakdown::activations},
     {"workspace", &MemoryBreakdown::workspace},
     {"communication", &MemoryBreakdown::communication},
     {"context", &MemoryBreakdown::context}}};

/// One optimizer step. Of a plan with a pipeline the parts are means over its stages, so that they
/// sum to the step; `StageTime` tells each stage. *Exposed* communication is time the compute queue
/// waits on that collective. Waiting for other stages is *fill_drain* as far as the schedule itself
/// imposes it on equal stages, and *imbalance* beyond: core/schedule/stage_waits.hpp defines both,
/// for predicted and measured steps alike. Together they are what is called the pipeline's bubble.
struct CostBreakdown {
  Seconds compute;
  Seconds recompute;
  Seconds tp_comm_exposed;
  Seconds cp_comm_exposed;
  Seconds ep_comm_exposed;
  Seconds pp_comm_exposed;
  Seconds dp_comm_exposed;
  Seconds fill_drain;
  Seconds imbalance;
  Seconds optimizer;
  Seconds host;  ///< GPU waiting for the host to launch work; fixed work per step
  Seconds data;

  [[nodiscard]] Seconds bubble() const { return fill_drain + imbalance; }
  [[nodiscard]] Seconds communication() const {
    return tp_comm_exposed + cp_comm_exposed + ep_comm_exposed + pp_comm_exposed + dp_comm_exposed;
  }
  [[nodiscard]] Seconds total() const {
    return compute + recompute + tp_comm_exposed + cp_comm_exposed + ep_comm_exposed +
           pp_comm_exposed + dp_comm_exposed + fill_drain + imbalance + optimizer + host + data;
  }
  bool operator==(const CostBreakdown&) const = default;
};

/// The same step on one pipeline stage, measured as the mean over its ranks. total() is the step:
/// it is the same on every stage.
struct StageTime {
  Seconds compute;
  Seconds recompute;
  Seconds communication_wait;  ///< for collectives and for messages on their way
  Seconds fill_drain;          ///< waiting for other stages, as any stages of that many make it
  Seconds imbalance;           ///< waiting for stages that are slower than this one
  Seconds optimizer;
  Seconds host;
  Seconds data;

  [[nodiscard]] Seconds idle() const { return fill_drain + imbalance + communication_wait; }
  [[nodiscard]] Seconds total() const {
    return compute + recompute + communication_wait + fill_drain + imbalance + optimizer + host +
           data;
  }
  bool operator==(const StageTime&) const = default;
};

/// Of a stage whose parts are known by the axis they serve.
[[nodiscard]] StageTime stage_time(const CostBreakdown& parts);

}  // namespace echelon
