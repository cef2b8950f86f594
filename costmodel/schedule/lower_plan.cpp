#include "costmodel/schedule/lower_plan.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "costmodel/schedule/build.hpp"
#include "costmodel/schedule/gather_slots.hpp"
#include "costmodel/schedule/simulator.hpp"

namespace echelon {
namespace {

/// Token and target of one position, as 32-bit numbers.
constexpr double kBytesPerPosition = 8;

std::int64_t rounded_up(Bytes bytes) {
  return static_cast<std::int64_t>(std::ceil(bytes.in(kByte)));
}

bool reduces(const ParallelPlan& plan) { return plan.dp * plan.cp * plan.copies() > 1; }
bool shards(const ParallelPlan& plan) {
  return plan.zero > 0 && plan.shard_group * plan.copies() > 1;
}

int fewest_layers_of_a_chunk(const ParallelPlan& plan) {
  return std::max(1, *std::ranges::min_element(plan.layers_per_stage) * plan.copies() / plan.vpp);
}

/// Gather units or gradient buckets of every chunk.
int units_of(const Framework& framework, const ParallelPlan& plan, double buckets) {
  if (!reduces(plan)) return 1;
  const int layers = fewest_layers_of_a_chunk(plan);
  if (plan.zero >= 2) return layers;
  // Without overlap one reduction follows the last backward.
  if (!plan.overlap_dp || !framework.overlaps_dp) return 1;
  return static_cast<int>(std::clamp(std::ceil(buckets / plan.vpp), 1.0, double(layers)));
}

/// What one rank does next to its chunks. The optimizer's own time includes clearing.
RankTimes rank_times(const StageModel& model, const Stage& stage, const StageTraffic& traffic,
                     double pieces, double chunks) {
  RankTimes times;
  times.gather_unit = traffic.gather / pieces;
  times.reduce_bucket = traffic.reduce / pieces;
  times.reduce_tied = model.tied_sync();
  times.norm_reduce = model.norm(stage);
  times.optimizer = model.optimizer(stage) - times.norm_reduce;
  times.gather_updated = traffic.gather / chunks;
  return times;
}

}  // namespace

PipelineShape shape_of(const ParallelPlan& plan, std::int64_t global_batch) {
  return {.kind = plan.schedule,
          .ranks = plan.pp,
          .chunks = plan.vpp,
          .microbatches = static_cast<int>(std::min<std::int64_t>(
              std::numeric_limits<int>::max(), plan.microbatches_of_chunk(global_batch))),
          .group = plan.microbatch_group};
}

ScheduleCosts pipeline_costs(const CostModel& cost_model, const StageModel& model,
                             const ParallelPlan& plan, const PipelineShape& shape) {
  ScheduleCosts costs;
  costs.stages.resize(static_cast<std::size_t>(shape.stages()));
  costs.hops.assign(static_cast<std::size_t>(plan.pp), model.hop());
  std::vector<Stage> chunks;
  chunks_of(cost_model, plan, chunks);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const StageTimes each = model.times(chunks[i]);
    costs.stages[i] = {.forward = each.forward,
                       .backward_input = 0.5 * (each.backward - each.recompute),
                       .backward_weight = 0.5 * (each.backward - each.recompute),
                       .recompute = each.recompute};
  }
  return on_exact_grid(std::move(costs), shape.chunks, shape.microbatches);
}

double instructions_of(const CostModel& cost_model, const ParallelPlan& plan) {
  const PipelineShape shape = shape_of(plan, cost_model.job().global_batch);
  const double units = units_of(cost_model.framework(), plan, 1e9);
  // Per chunk and microbatch: forward, backward (or its halves), four ends of messages; per unit of
  // ZeRO-3 two passes, a gather, a release and a reduction, of ZeRO-2 a backward and a reduction.
  const double each = plan.zero == 3 ? 7 + 6 * units : plan.zero == 2 ? 7 + 2 * units : 7;
  const auto microbatches =
      static_cast<double>(plan.microbatches_of_chunk(cost_model.job().global_batch));
  return each * shape.stages() * microbatches + 2 * units * shape.stages();
}

TimedSchedule timed_schedule_of(const CostModel& cost_model, const ParallelPlan& plan,
                                std::span<const Stage> stages) {
  const ShardingCosts sharding = cost_model.sharding_costs(plan);
  const StageModel model(cost_model, plan, sharding);
  ScheduleSpec spec;
  spec.shape = shape_of(plan, cost_model.job().global_batch);
  std::vector<StageTraffic> traffic;
  double buckets = 1;
  for (const Stage& stage : stages) {
    traffic.push_back(model.traffic(stage));
    buckets = std::max(buckets, traffic.back().buckets);
  }
  spec.units = units_of(cost_model.framework(), plan, buckets);
  spec.reduce_gradients = reduces(plan);
  spec.reduce_every_microbatch = plan.zero >= 2 && !cost_model.framework().reduces_once(plan);
  spec.gather_slots = plan.zero == 3 && shards(plan) ? kGatherSlots : 0;
  spec.gather_updated = plan.zero < 3 && shards(plan);
  spec.tied_embedding = cost_model.model().tied_embeddings && placement_of(plan).last_rank() > 0 &&
                        !cost_model.job().adapters;
  spec.clip = true;
  spec.batch_bytes =
      rounded_up(Bytes{kBytesPerPosition * plan.microbatch * cost_model.job().sequence / plan.cp});
  if (spec.tied_embedding) {
    spec.tied_bytes = rounded_up(
        Bytes{sharding.embedding_parameters * cost_model.job().precision.reduced_gradient});
  }
  const double chunks = plan.vpp;
  const double pieces = chunks * spec.units;
  ScheduleCosts costs = pipeline_costs(cost_model, model, plan, spec.shape);
  spec.stages.resize(static_cast<std::size_t>(spec.shape.stages()));
  std::vector<Stage> parts;
  chunks_of(cost_model, plan, parts);
  for (std::size_t rank = 0; rank < stages.size(); ++rank) {
    const StageTraffic& all = traffic[rank];
    costs.ranks.push_back(rank_times(model, stages[rank], all, pieces, chunks));
    // Chunks take turns in the same buffers.
    Bytes saved;
    for (int chunk = 0; chunk < plan.vpp; ++chunk) {
      const int stage = spec.shape.stage(stages[rank].index, chunk);
      saved = std::max(saved, model.traffic(parts[static_cast<std::size_t>(stage)]).saved);
    }
    for (int chunk = 0; chunk < plan.vpp; ++chunk) {
      const int stage = spec.shape.stage(stages[rank].index, chunk);
      // What an input gradient hands to its weight gradient is counted with what is saved, as the
      // memory model does.
      spec.stages[static_cast<std::size_t>(stage)] = {
          .boundary = spec.shape.placement().enters(stage) ? 0 : rounded_up(sharding.layer_input),
          .saved = rounded_up(saved),
          .weight_inputs = 0,
          .parameters = rounded_up(all.parameters / pieces),
          .gradients = rounded_up(all.gradients / pieces)};
    }
  }
  TimedSchedule out{build_schedule(spec, costs), {}};
  out.costs = std::move(costs);
  return out;
}

Schedule schedule_of(const CostModel& cost_model, const ParallelPlan& plan,
                     std::span<const Stage> stages) {
  return timed_schedule_of(cost_model, plan, stages).schedule;
}

SimulatedStep simulate_plan(const CostModel& cost_model, const ParallelPlan& plan,
                            std::span<const Stage> stages) {
  TimedSchedule timed = timed_schedule_of(cost_model, plan, stages);
  Timeline timeline = simulate(timed.schedule, timed.costs);
  return {std::move(timed.schedule), std::move(timed.costs), std::move(timeline)};
}

}  // namespace echelon
