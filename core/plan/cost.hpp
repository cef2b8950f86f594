// Named parts of a prediction. The parts are all there is: total() is their sum.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

#include "core/base/units.hpp"
#include "core/plan/process_grid.hpp"

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

/// The axes whose communication has a part of the step of its own, in the order of the parts.
inline constexpr std::array<Axis, 5> kStepAxes = {Axis::tp, Axis::cp, Axis::ep, Axis::pp, Axis::dp};
/// The one among them that an axis counts as: experts' tensor and data parallelism have no part.
[[nodiscard]] constexpr Axis step_axis(Axis axis) {
  if (axis == Axis::etp) return Axis::ep;
  return axis == Axis::expert_dp ? Axis::dp : axis;
}

/// One optimizer step. Of a plan with a pipeline the parts are means over its stages, so that they
/// sum to the step; `StageTime` tells each stage. *Exposed* communication is time the compute queue
/// waits on that collective. Waiting for other stages is *fill_drain* as far as the schedule itself
/// imposes it on equal stages, and *imbalance* beyond: core/schedule/stage_waits.hpp defines both,
/// for predicted and measured steps alike. Together they are what is called the pipeline's bubble.
struct CostBreakdown {
  Seconds compute;
  Seconds recompute;
  AxisArray<Seconds> exposed;  ///< communication of kStepAxes
  Seconds fill_drain;
  Seconds imbalance;
  Seconds stragglers;  ///< waiting for the slowest of many nodes, at whatever collective
  Seconds optimizer;
  Seconds host;  ///< GPU waiting for the host: launches, offloaded activations; fixed work per step
  Seconds data;

  [[nodiscard]] Seconds bubble() const { return fill_drain + imbalance; }
  [[nodiscard]] Seconds communication() const {
    Seconds sum;
    for (const Axis axis : kStepAxes) sum += exposed[axis];
    return sum;
  }
  [[nodiscard]] Seconds total() const {
    Seconds sum = compute + recompute;
    for (const Axis axis : kStepAxes) sum += exposed[axis];
    return sum + fill_drain + imbalance + stragglers + optimizer + host + data;
  }
  bool operator==(const CostBreakdown&) const = default;
};

/// One part of a step: a member of CostBreakdown, or the exposed communication of an axis.
struct StepPart {
  std::string_view key;    ///< in files, with "_seconds" behind it
  std::string_view label;  ///< in texts
  Seconds CostBreakdown::*member = nullptr;
  Axis axis{};  ///< where there is no member

  [[nodiscard]] constexpr Seconds& of(CostBreakdown& parts) const {
    return member != nullptr ? parts.*member : parts.exposed[axis];
  }
  [[nodiscard]] constexpr Seconds of(const CostBreakdown& parts) const {
    return member != nullptr ? parts.*member : parts.exposed[axis];
  }
};
/// All parts, in the order in which files, tables and texts list them.
inline constexpr std::array<StepPart, 13> kStepParts = {{
    {"compute", "compute", &CostBreakdown::compute},
    {"recompute", "recompute", &CostBreakdown::recompute},
    {"tp_comm_exposed", "tp communication", nullptr, Axis::tp},
    {"cp_comm_exposed", "cp communication", nullptr, Axis::cp},
    {"ep_comm_exposed", "ep communication", nullptr, Axis::ep},
    {"pp_comm_exposed", "pp communication", nullptr, Axis::pp},
    {"dp_comm_exposed", "dp communication", nullptr, Axis::dp},
    {"fill_drain", "pipeline fill/drain", &CostBreakdown::fill_drain},
    {"imbalance", "stage imbalance", &CostBreakdown::imbalance},
    {"stragglers", "slowest node", &CostBreakdown::stragglers},
    {"optimizer", "optimizer", &CostBreakdown::optimizer},
    {"host", "host", &CostBreakdown::host},
    {"data", "data", &CostBreakdown::data},
}};

static_assert(sizeof(CostBreakdown) ==
                  (kStepParts.size() - kStepAxes.size() + kAxes.size()) * sizeof(Seconds),
              "a part that the list lacks");

/// Adds `share` of every part of `parts` to `sum`.
inline void add_share(const CostBreakdown& parts, double share, CostBreakdown& sum) {
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    ((kStepParts[i].of(sum) += share * kStepParts[i].of(parts)), ...);
  }
  (std::make_index_sequence<kStepParts.size()>{});
}

/// The same step on one pipeline stage, measured as the mean over its ranks. total() is the step:
/// it is the same on every stage.
struct StageTime {
  Seconds compute;
  Seconds recompute;
  Seconds communication_wait;  ///< for collectives and for messages on their way
  Seconds fill_drain;          ///< waiting for other stages, as any stages of that many make it
  Seconds imbalance;           ///< waiting for stages that are slower than this one
  Seconds stragglers;          ///< waiting for the slowest of many nodes
  Seconds optimizer;
  Seconds host;
  Seconds data;

  [[nodiscard]] Seconds idle() const {
    return fill_drain + imbalance + communication_wait + stragglers;
  }
  [[nodiscard]] Seconds total() const {
    return compute + recompute + communication_wait + fill_drain + imbalance + stragglers +
           optimizer + host + data;
  }
  bool operator==(const StageTime&) const = default;
};

/// Of a stage whose parts are known by the axis they serve.
[[nodiscard]] StageTime stage_time(const CostBreakdown& parts);

}  // namespace echelon
