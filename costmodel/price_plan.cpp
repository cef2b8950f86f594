// Memory and time of a whole plan: its stages (stage_model.hpp) put together.
#include <algorithm>

#include "costmodel/price.hpp"
#include "costmodel/stage_model.hpp"

namespace echelon {

void Pricer::price_memory(const ParallelPlan& plan, const CutCosts& costs,
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
};

StagePrice price_stage(const StageModel& model, const Stage& stage) {
  StagePrice out;
  out.times = model.times(stage);
  out.gather = model.gather(stage, out.times);
  out.reduction = model.reduction(stage, out.times);
  out.optimizer = model.optimizer(stage);
  return out;
}

}  // namespace

/// Ranks that share fewer cores take turns, and one that waits lends its core to others; while a
/// pipeline of c cores fills and empties, a stages of r ranks each leave c − a·r of them idle:
///   step = max(critical path with a core each, (work of all ranks + idle) / cores)
///   idle = Σ over a = 1 .. stages − 1 of  max(0, c − a·r) · (forward and backward of a chunk)
/// `busy` is the work of one rank of every stage, `chunk` the mean time of a chunk.
/// Source: Graham's bounds on a greedy schedule (1966), whose larger one it is without `idle`.
/// Checked by: tests/costmodel/this_machine_test.cpp.
void Pricer::share_cores(const ParallelPlan& plan, Seconds busy, Seconds chunk,
                         TimePrediction& out) const {
  out.shared = out.turns = Seconds{};
  const NodeSpec& node = cluster_.node();
  if (node.cores > 0 && plan.gpus() > node.at_once()) {
    const double of_stage = static_cast<double>(plan.gpus()) / plan.pp;
    Seconds idle;
    for (int filled = 1; filled < plan.pp; ++filled) {
      idle += std::max(0.0, node.at_once() - filled * of_stage) * chunk;
    }
    out.shared = (of_stage * busy + idle) / node.at_once();
    out.turns = std::max(Seconds{}, out.shared - out.parts.total());
    out.parts.compute += out.turns;
  }
  out.step = out.parts.total();
}

void Pricer::price_time(const ParallelPlan& plan, const CutCosts& costs,
                        std::span<const Stage> stages, TimePrediction& out) const {
  const StageModel model(*this, plan, costs);

  // Step 1: the pipeline. A later stage's parameter gather hides behind earlier stages' forwards.
  Seconds sum;
  Seconds slowest;
  Seconds gather_exposed;
  Seconds forward_before;
  StagePrice price;
  const Stage* previous = nullptr;
  const auto visit = [&](const Stage& stage) {
    if (previous == nullptr || !same_kind(*previous, stage, plan.pp)) {
      price = price_stage(model, stage);
    }
    previous = &stage;
  };
  for (const Stage& stage : stages) {
    visit(stage);
    sum += price.times.total();
    slowest = std::max(slowest, price.times.total());
    gather_exposed = std::max(gather_exposed, price.gather - forward_before);
    forward_before += price.times.forward / plan.vpp + model.hop();
  }
  const double m = static_cast<double>(model.microbatches());
  const Seconds steady = (m - 1) * model.steady_hops(slowest);
  const Seconds pipeline = model.pipeline(sum, slowest);

  // Step 2: each stage ends its last backward, finishes its reduction and updates its weights; the
  // step ends with the last of them.
  Seconds busy;             // of one rank of every stage
  Seconds backward_before;  // last microbatch's backward still to run on earlier stages
  Seconds latest{-1};
  CostBreakdown& parts = out.parts;
  previous = nullptr;
  for (const Stage& stage : stages) {
    visit(stage);
    const StageTimes& times = price.times;
    const Seconds end = pipeline - backward_before;
    const Seconds finish = end + price.reduction + price.optimizer;
    busy += m * times.total() + price.reduction + price.optimizer + price.gather;
    backward_before += times.backward / plan.vpp + model.hop();
    if (finish <= latest) continue;
    latest = finish;
    parts = CostBreakdown{};
    parts.compute = m * times.compute;
    parts.recompute = m * times.recompute;
    parts.tp_comm_exposed = m * times.tp;
    parts.cp_comm_exposed = m * times.cp;
    parts.ep_comm_exposed = m * times.ep;
    parts.host = m * times.host;
    parts.pp_comm_exposed = steady;
    parts.fill_drain = std::max(Seconds{}, end - m * times.total() - steady);
    parts.dp_comm_exposed = m * times.dp + price.reduction + gather_exposed;
    parts.optimizer = price.optimizer;
  }

  // Step 3: what every step pays, and the wait for the slowest of many nodes.
  parts.host += calibration_.step_fixed;
  const Seconds wait = model.straggler_share() * parts.total();
  (plan.dp > 1 ? parts.dp_comm_exposed : parts.imbalance) += wait;
  share_cores(plan, busy, sum / (plan.pp * plan.vpp), out);
  out.low = out.step / (1 + calibration_.time_band);
  out.high = out.step * (1 + calibration_.time_band);
}

}  // namespace echelon
