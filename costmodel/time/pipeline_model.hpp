// The pipeline of one plan, whatever its stages hold.
#pragma once

#include <cstdint>

#include "costmodel/cost_model.hpp"

namespace echelon {

/// Time of one message of a plan between neighbouring stages. Nothing without stages. `costs`
/// belongs to the plan's sharding.
[[nodiscard]] Seconds boundary_hop(const CostModel& cost_model, const ParallelPlan& plan,
                                   const ShardingCosts& costs);

/// The closed forms and bounds of a plan's pipeline, from the times of its stages.
class PipelineModel {
 public:
  /// `hop`: boundary_hop() of the plan. `plan` must outlive the model.
  PipelineModel(const CostModel& cost_model, const ParallelPlan& plan, Seconds hop);

  /// Of a chunk: DualPipe's two directions have half of a step's each, and a rank's `times` are
  /// those of one of each.
  [[nodiscard]] std::int64_t microbatches() const { return microbatches_; }
  /// One boundary message.
  [[nodiscard]] Seconds hop() const { return hop_; }
  /// What a stage loses to its messages per microbatch when the slowest stage takes `busy`.
  [[nodiscard]] Seconds steady_hops(Seconds busy) const;
  /// From the first forward to the last backward.
  [[nodiscard]] Seconds pipeline(Seconds sum, Seconds slowest) const;
  /// A time that no simulated pipeline with these stages is below.
  [[nodiscard]] Seconds least_pipeline(Seconds sum, Seconds slowest) const;
  /// The part of a message that holds up its sender when the slowest stage takes `slowest`. Nothing
  /// where messages overlap: then a simulated pipeline waits for them where it has to.
  [[nodiscard]] Seconds blocking_hop(Seconds slowest) const;
  /// What the schedule lets a stage wait that takes `own` of the stages' `sum`, where none is
  /// slower: core/schedule/stage_waits.hpp, and a microbatch's messages there and back.
  [[nodiscard]] Seconds imposed(Seconds sum, Seconds own) const;
  [[nodiscard]] double straggler_share() const { return straggler_; }

 protected:
  const CostModel& cost_model_;
  const ParallelPlan& plan_;
  const Calibration& c_;
  std::int64_t microbatches_;  ///< of a chunk
  Seconds hop_;
  double straggler_ = 0;

 private:
  [[nodiscard]] double sends() const;
};

}  // namespace echelon
