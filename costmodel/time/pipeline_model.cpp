#include "costmodel/time/pipeline_model.hpp"

#include <cmath>

#include "core/schedule/stage_waits.hpp"
#include "costmodel/time/pipeline.hpp"
#include "costmodel/time/rates.hpp"

namespace echelon {
namespace {

/// One boundary message of S bytes:
///
///   send(S)                             as it is
///   send(S/tp) + all-gather over tp(S)  scattered: each of the tp ranks, which hold the same
///                                       tensor, sends its part, and the receivers gather it
///
/// With sequence parallelism S is a rank's own part already.
/// Source: Narayanan et al. (arXiv 2104.04473) section 4.1, "Scatter/gather communication
/// optimization". Checked by: tests/costmodel/time/stage_terms_test.cpp.
Seconds boundary_message(const CostModel& cost_model, const ParallelPlan& plan, Bytes payload,
                         const GroupLinks& pipe) {
  if (!cost_model.framework().scatters(plan)) return send_receive(payload, pipe);
  const GroupLinks receivers = cost_model.links(ProcessGrid(plan).group(Axis::tp));
  return send_receive(payload / plan.tp, pipe) + all_gather(payload, receivers);
}

}  // namespace

Seconds boundary_hop(const CostModel& cost_model, const ParallelPlan& plan,
                     const ShardingCosts& costs) {
  if (plan.pp == 1) return Seconds{};
  return boundary_message(cost_model, plan, costs.layer_input,
                          cost_model.links(ProcessGrid(plan).group(Axis::pp)));
}

PipelineModel::PipelineModel(const CostModel& cost_model, const ParallelPlan& plan, Seconds hop)
    : cost_model_(cost_model),
      plan_(plan),
      c_(cost_model.calibration()),
      microbatches_(plan.microbatches_of_chunk(cost_model.job().global_batch)),
      hop_(hop) {
  const int nodes = cost_model.cluster().nodes();
  straggler_ = nodes > 1 ? c_.straggler_per_doubling * std::log2(nodes) : 0.0;
}

/// A stage sends after each pass of a microbatch; of two stages, each has one pass that ends there.
double PipelineModel::sends() const {
  const bool ends = plan_.pp == 2 && plan_.schedule != ScheduleKind::dualpipe_v;
  return 2.0 * plan_.vpp - (ends ? plan_.copies() : 0);
}

/// Each message is hidden behind the compute of a chunk's pass where sends overlap.
Seconds PipelineModel::steady_hops(Seconds busy) const {
  if (plan_.pp == 1) return Seconds{};
  const Seconds cover = busy / (2.0 * plan_.vpp);
  return sends() * exposed_beside(hop_, cover, c_, plan_.overlap_pp);
}

Seconds PipelineModel::pipeline(Seconds sum, Seconds slowest) const {
  const double microbatches = static_cast<double>(microbatches_);
  const Seconds hops = (microbatches - 1) * steady_hops(slowest);
  if (cost_model_.ablated() == AblatedFeature::no_bubble) return microbatches * slowest + hops;
  return pipeline_time(plan_.schedule, sum, slowest, plan_.vpp, microbatches_) +
         2.0 * (plan_.pp - 1) * hop_ + hops;
}

Seconds PipelineModel::blocking_hop(Seconds slowest) const {
  if (plan_.overlap_pp || plan_.pp == 1) return Seconds{};
  return steady_hops(slowest) / sends();
}

/// All passes of a microbatch send but the last chunk's forward and the first chunk's backward, and
/// DualPipeV's two at the turn on its last rank; DualPipe's two pipelines leave out as many. Of a
/// stage all but one do, of a V's ends all but two, and of DualPipe's end ranks as well.
Seconds PipelineModel::least_pipeline(Seconds sum, Seconds slowest) const {
  if (cost_model_.ablated() == AblatedFeature::no_bubble) return pipeline(sum, slowest);
  const Seconds blocking = blocking_hop(slowest);
  const bool both = runs_both_ways(plan_.schedule);
  const double turn = both ? 1 : 0;
  return least_pipeline_time({.schedule = plan_.schedule,
                              .pp = plan_.pp,
                              .vpp = plan_.vpp,
                              .microbatches = microbatches_,
                              .sum = sum + (2.0 * plan_.pp * plan_.vpp - 2 - 2 * turn) * blocking,
                              .slowest = slowest + (2.0 * plan_.vpp - 1 - turn) * blocking,
                              .hop = hop_ - blocking,
                              .least_chunk = {}});
}

Seconds PipelineModel::imposed(Seconds sum, Seconds own) const {
  if (cost_model_.ablated() == AblatedFeature::no_bubble) return Seconds{};
  return imposed_waiting(plan_.schedule, plan_.vpp, microbatches_, sum - own, own) +
         2.0 * (plan_.pp - 1) * hop_;
}

}  // namespace echelon
