// Memory and time of a whole plan: its stages (stage_model.hpp) put together.
#include <algorithm>

#include "core/base/expects.hpp"
#include "core/schedule/stage_waits.hpp"
#include "costmodel/cost_model.hpp"
#include "costmodel/time/stage_model.hpp"

namespace echelon {

void CostModel::price_memory(const ParallelPlan& plan, const ShardingCosts& costs,
                             MemoryPrediction& out) const {
  const StageModel model(*this, plan, costs);
  stages_of(*this, plan, out.contents);
  out.stages.resize(out.contents.size());
  out.capacity = cluster_.gpu().memory;
  out.peak = out.peak_reserved = out.peak_allocated = out.allocator_reserve = Bytes{};
  for (const Stage& stage : out.contents) {
    MemoryBreakdown& memory = out.stages[static_cast<std::size_t>(stage.index)];
    memory = model.memory(stage);
    out.peak = std::max(out.peak, memory.total());
    if (const Bytes reserved = model.reserved(memory); reserved > out.peak_reserved) {
      out.peak_reserved = reserved;
      out.allocator_reserve = reserved - memory.total();
      out.peak_allocated = model.allocated(memory);
      out.tightest_stage = stage.index;
    }
  }
}

namespace {

/// Stages in the middle that hold the same cost the same: compute each kind once.
bool same_kind(const Stage& a, const Stage& b, int pp) {
  const auto end = [&](const Stage& s) { return s.index == 0 || s.index == pp - 1; };
  return !end(a) && !end(b) && a.layers == b.layers && a.recomputed == b.recomputed &&
         a.selective == b.selective;
}

/// Everything that one stage adds to the step.
struct StagePrice {
  StageTimes times;
  Seconds gather, reduction, optimizer;
  /// After its last backward.
  [[nodiscard]] Seconds ending() const { return reduction + optimizer; }
};

/// What the stages have in common.
struct Pipeline {
  bool alone = true;       ///< one stage: nobody to wait for
  Seconds sum, slowest;    ///< of the stages' times per microbatch
  Seconds gather;          ///< of parameters, exposed before the first forwards
  Seconds steady;          ///< exposed messages between the first microbatch and the last
  Seconds longest_ending;  ///< of any stage
  Seconds busiest;         ///< own work of the stage that has most, its ending included
  Seconds latest;          ///< end of the step after the first stage's last backward
};

/// Prices stages in turn; one of the same kind as its predecessor costs the same.
class StagePrices {
 public:
  StagePrices(const StageModel& model, int pp) : model_(model), pp_(pp) {}

  const StagePrice& of(const Stage& stage) {
    if (previous_ == nullptr || !same_kind(*previous_, stage, pp_)) {
      price_.times = model_.times(stage);
      price_.gather = model_.gather(stage, price_.times);
      price_.reduction = model_.reduction(stage, price_.times);
      price_.optimizer = model_.optimizer(stage);
    }
    previous_ = &stage;
    return price_;
  }

 private:
  const StageModel& model_;
  int pp_;
  const Stage* previous_ = nullptr;
  StagePrice price_;
};

/// A later stage's parameter gather hides behind earlier stages' forwards. Each stage ends its last
/// backward, finishes its reduction and updates its weights; the step ends with the last of them.
Pipeline pipeline_of(const StageModel& model, const ParallelPlan& plan,
                     std::span<const Stage> stages) {
  Pipeline all;
  all.alone = plan.pp == 1;
  const double m = static_cast<double>(model.microbatches());
  Seconds forward_before;
  Seconds backward_before;  // last microbatch's backward still to run on earlier stages
  StagePrices prices(model, plan.pp);
  for (const Stage& stage : stages) {
    const StagePrice& price = prices.of(stage);
    all.sum += price.times.total();
    all.slowest = std::max(all.slowest, price.times.total());
    all.gather = std::max(all.gather, price.gather - forward_before);
    all.longest_ending = std::max(all.longest_ending, price.ending());
    all.busiest = std::max(all.busiest, m * price.times.total() + price.ending());
    all.latest = std::max(all.latest, price.ending() - backward_before);
    forward_before += price.times.forward / plan.vpp + model.hop();
    backward_before += price.times.backward / plan.vpp + model.hop();
  }
  all.steady = (m - 1) * model.steady_hops(all.slowest);
  return all;
}

/// One stage's step, which ends at `end`: its own work, and what of the rest it waits for whom.
/// Under ZB-H1 a reduction or update may be longer than the rest, for the step ends as if drains
/// were those of 1F1B: what is too much of it runs in the drain.
CostBreakdown stage_parts(const StageModel& model, const StagePrice& price, const Pipeline& all,
                          Seconds end) {
  const double m = static_cast<double>(model.microbatches());
  const StageTimes& times = price.times;
  const Seconds waiting = end - m * times.total() - all.steady - price.ending();
  const Seconds slower = m * (all.slowest - times.total()) + all.longest_ending - price.ending();
  StageWaits waits;
  if (!all.alone) {
    waits =
        divide_waiting(std::max(Seconds{}, waiting), model.imposed(all.sum, times.total()), slower);
  }
  CostBreakdown parts;
  parts.compute = m * times.compute;
  parts.recompute = m * times.recompute;
  for (const Axis axis : kStepAxes) parts.exposed[axis] = m * times.exposed[axis];
  parts.exposed[Axis::pp] = all.steady + waits.messages;
  Seconds& data_parallel = parts.exposed[Axis::dp];
  data_parallel = data_parallel + price.reduction + all.gather;
  parts.fill_drain = waits.fill_drain;
  parts.imbalance = waits.imbalance;
  parts.optimizer = price.optimizer;
  parts.host = m * times.host;
  if (Seconds hidden = -waiting; hidden > 1e-9 * end) {
    const Seconds reduction = std::min(hidden, data_parallel);
    data_parallel -= reduction;
    parts.optimizer -= hidden - reduction;
  }
  return parts;
}

}  // namespace

/// Ranks that share fewer cores take turns, and one that waits lends its core to others; while a
/// pipeline of c cores fills and empties, a stages of r ranks each leave c − a·r of them idle:
///   step = max(critical path with a core each, (work of all ranks + idle) / cores)
///   idle = Σ over a = 1 .. stages − 1 of  max(0, c − a·r) · (forward and backward of a chunk)
/// `busy` is the work of one rank of every stage, `chunk` the mean time of a chunk.
/// Source: Graham's bounds on a greedy schedule (1966), whose larger one it is without `idle`.
/// Checked by: tests/costmodel/calibration/this_machine_test.cpp.
Seconds CostModel::shared_cores(const ParallelPlan& plan, Seconds busy, Seconds chunk) const {
  const NodeSpec& node = cluster_.node();
  if (node.cores <= 0 || plan.gpus() <= node.at_once()) return Seconds{};
  const double of_stage = static_cast<double>(plan.gpus()) / plan.pp;
  Seconds idle;
  for (int filled = 1; filled < plan.pp; ++filled) {
    idle += std::max(0.0, node.at_once() - filled * of_stage) * chunk;
  }
  return (of_stage * busy + idle) / node.at_once();
}

Seconds CostModel::data_loading(const ParallelPlan& plan) const {
  constexpr int kShortTokens = 65'500;
  const double width = model_.vocab < kShortTokens ? 2 : 4;
  const double readers = std::max(1.0, static_cast<double>(cluster_.gpus_per_node()) / plan.tp);
  const Bytes of_rank{width * job_.tokens_per_step() / plan.dp};
  return readers * of_rank / (cluster_.storage_bandwidth() / cluster_.nodes());
}

void CostModel::price_time(const ParallelPlan& plan, const ShardingCosts& costs,
                           std::span<const Stage> stages, TimePrediction& out,
                           std::optional<Seconds> pipeline) const {
  const StageModel model(*this, plan, costs);

  // Step 1: the pipeline.
  Pipeline all = pipeline_of(model, plan, stages);
  const Seconds closed_form = model.pipeline(all.sum, all.slowest);
  const Seconds end = pipeline.value_or(closed_form) + all.latest;
  if (pipeline) all.steady = std::clamp(end - all.busiest, Seconds{}, all.steady);

  // Step 2: what every stage does until then, and what it waits for.
  const double m = static_cast<double>(model.microbatches());
  Seconds busy;  // of one rank of every stage
  out.parts = CostBreakdown{};
  out.stages.clear();
  StagePrices prices(model, plan.pp);
  for (const Stage& stage : stages) {
    const StagePrice& price = prices.of(stage);
    busy += m * price.times.total() + price.ending() + price.gather;
    CostBreakdown parts = stage_parts(model, price, all, end);
    parts.host += calibration_.step_fixed;
    out.stages.push_back(stage_time(parts));
    add_share(parts, 1.0 / plan.pp, out.parts);
  }

  // Step 3: the wait for the slowest of many nodes.
  const Seconds wait = model.straggler_share() * out.parts.total();
  out.parts.stragglers = wait;
  for (StageTime& stage : out.stages) stage.stragglers = wait;
  out.pipeline = {.sum = all.sum,
                  .slowest = all.slowest,
                  .taken = pipeline.value_or(closed_form),
                  .stretch = 1 + model.straggler_share()};
  const Seconds longer = (closed_form + all.latest - end) * (1 + model.straggler_share());
  out.shared = shared_cores(plan, busy, all.sum / (plan.pp * plan.vpp));
  out.closed_form = std::max(out.shared, out.parts.total() + longer);
  out.turns =
      out.shared > Seconds{} ? std::max(Seconds{}, out.shared - out.parts.total()) : Seconds{};
  out.parts.compute += out.turns;
  for (StageTime& stage : out.stages) stage.compute += out.turns;

  // Step 4: the tokens of the next step.
  out.data_load = data_loading(plan);
  out.closed_form = std::max(out.closed_form, out.data_load);
  out.parts.data = std::max(Seconds{}, out.data_load - out.parts.total());
  for (StageTime& stage : out.stages) stage.data = out.parts.data;
  out.step = out.parts.total();
  EXPECTS(out.step.is_finite(), "a step takes a finite time");
  out.low = out.step / (1 + calibration_.time_band);
  out.high = out.step * (1 + calibration_.time_band);
}

}  // namespace echelon
