// Memory of DualPipeV and DualPipe: chunks in flight, both ends of the model on one rank, copies.
#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/schedule/lower_plan.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

struct PricedV {
  PlanCosts costs;
  ShardingCosts sharding;
  PipelineShape shape;
};

PricedV priced_v(const ModelSpec& model, const ParallelPlan& plan, int microbatches,
                 const char* of = "torchtitan") {
  const Framework framework = find_framework(of).value();
  const ClusterTopology cluster = ClusterTopology::load("dgx-h100", 8 * plan.pp).value();
  TrainingJob job;
  job.sequence = 2048;
  job.global_batch = std::int64_t{microbatches} * plan.dp;
  job.precision = find_precision(framework.default_precision).value();
  const CostModel cost_model(model, job, cluster, framework,
                             prior_calibration(cluster.gpu(), framework).value());
  return {cost_model.price(plan), cost_model.sharding_costs(sharding_of(plan)),
          shape_of(plan, job.global_batch)};
}

ParallelPlan v_plan_of(ScheduleKind schedule, int vpp, std::vector<int> layers) {
  ParallelPlan plan;
  plan.tp = 8;
  plan.sequence_parallel = true;
  plan.pp = static_cast<int>(layers.size());
  plan.vpp = vpp;
  plan.schedule = schedule;
  plan.zero = 2;
  plan.recompute_layers.assign(layers.size(), 0);
  plan.layers_per_stage = std::move(layers);
  return plan;
}

}  // namespace

TEST_CASE("DualPipeV keeps what its fullest set of chunks in flight keeps") {
  const ModelSpec model = load_model("llama2-7b").value();
  int unequal = 0;
  for (const std::vector<int>& layers :
       {std::vector{8, 8, 8, 8}, std::vector{7, 9, 9, 7}, std::vector{6, 9, 10, 7}}) {
    for (const int microbatches : {8, 9, 16}) {
      const ParallelPlan plan = v_plan_of(ScheduleKind::dualpipe_v, 2, layers);
      const PricedV p = priced_v(model, plan, microbatches);
      for (int rank = 0; rank < plan.pp; ++rank) {
        double now = 0;
        double most = 0;
        for (const ComputeStep& step : compute_order(p.shape, rank)) {
          const int size = layers_in_chunk(plan, rank, step.chunk);
          const double kept = (size * p.sharding.dense.saved).in(kByte);
          if (step.op == Op::forward) most = std::max(most, now += kept);
          if (step.op == Op::backward || step.op == Op::backward_weight) now -= kept;
        }
        if (rank == 0) {
          // 2pp microbatches of the chunk with the embedding; the loss runs back at once.
          most += (8 * p.sharding.embedding_saved + p.sharding.head_saved).in(kByte);
        }
        if (layers_in_chunk(plan, rank, 0) != layers_in_chunk(plan, rank, 1)) ++unequal;
        INFO("rank " << rank << ", " << microbatches << " microbatches");
        CHECK(p.costs.memory.stages[static_cast<std::size_t>(rank)].activations.in(kByte) ==
              Approx(most).epsilon(1e-9));
      }
    }
  }
  CHECK(unequal > 10);
}

TEST_CASE("DualPipeV's first rank holds the embedding and the head, its last one neither") {
  const ModelSpec model = load_model("llama2-7b").value();
  const auto weights = [&](ScheduleKind schedule, int vpp) {
    const PricedV p = priced_v(model, v_plan_of(schedule, vpp, {8, 8, 8, 8}), 16);
    std::vector<double> of_stage;
    for (const MemoryBreakdown& stage : p.costs.memory.stages) {
      of_stage.push_back(stage.weights.in(kByte));
    }
    return of_stage;
  };
  const std::vector<double> v = weights(ScheduleKind::dualpipe_v, 2);
  const std::vector<double> line = weights(ScheduleKind::interleaved, 2);
  const double middle = line[1];
  CHECK(v[1] == middle);
  CHECK(v[3] == middle);
  CHECK(line[0] > middle);
  CHECK(v[0] - middle == Approx((line[0] - middle) + (line[3] - middle)));
}

TEST_CASE("a tied embedding is there once under DualPipeV, and needs no sum over two ranks") {
  ModelSpec model = load_model("llama2-7b").value();
  model.tied_embeddings = true;
  const PricedV v = priced_v(model, v_plan_of(ScheduleKind::dualpipe_v, 2, {8, 8, 8, 8}), 16);
  const PricedV line = priced_v(model, v_plan_of(ScheduleKind::interleaved, 2, {8, 8, 8, 8}), 16);
  const auto weights = [](const PricedV& p, std::size_t stage) {
    return p.costs.memory.stages[stage].weights.in(kByte);
  };
  CHECK(weights(v, 0) == weights(line, 0) + 6.0 * model.hidden);  // the last norm, fp32 and bf16
  CHECK(weights(v, 3) == Approx(weights(line, 1)));
  CHECK(weights(line, 3) > weights(line, 1));
}

/// dp 8, on as many GPUs as the plans above.
ParallelPlan both_ways_plan(ScheduleKind schedule, std::vector<int> layers) {
  ParallelPlan plan = v_plan_of(schedule, schedule == ScheduleKind::dualpipe ? 2 : 1, layers);
  plan.tp = 1;
  plan.sequence_parallel = false;
  plan.dp = plan.shard_group = 8;
  plan.zero = 1;
  return plan;
}

TEST_CASE("DualPipe keeps pp + 1 microbatches of the two stages that a rank holds") {
  const ModelSpec model = load_model("llama2-7b").value();
  for (const std::vector<int>& layers :
       {std::vector{8, 8, 8, 8}, std::vector{7, 9, 8, 8}, std::vector{6, 9, 10, 7}}) {
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      ParallelPlan plan = both_ways_plan(ScheduleKind::dualpipe, layers);
      plan.recompute = recompute;
      if (recompute == Recompute::full) plan.recompute_layers.assign(4, 2);
      const PricedV p = priced_v(model, plan, 16, "hai-llm");
      CHECK(p.shape.microbatches == 8);
      for (int rank = 0; rank < plan.pp; ++rank) {
        double now = 0;
        double most = 0;
        for (const ComputeStep& step : compute_order(p.shape, rank)) {
          const int stage = step.chunk == 0 ? rank : 3 - rank;
          const int again = plan.recompute_layers[static_cast<std::size_t>(stage)];
          const int size = layers[static_cast<std::size_t>(stage)] - again;
          const double kept =
              (size * p.sharding.dense.saved + again * p.sharding.layer_input).in(kByte);
          if (step.op == Op::forward) most = std::max(most, now += kept);
          if (step.op == Op::backward || step.op == Op::backward_weight) now -= kept;
        }
        if (rank == 0 || rank == 3) {
          most += (4 * p.sharding.embedding_saved + p.sharding.head_saved).in(kByte);
        }
        INFO("rank " << rank << ", recompute " << name_of(recompute));
        CHECK(p.costs.memory.stages[static_cast<std::size_t>(rank)].activations.in(kByte) ==
              Approx(most).epsilon(1e-9));
      }
    }
  }
}

TEST_CASE("DualPipe keeps parameters and gradients twice, and the states of one copy") {
  const ModelSpec model = load_model("llama2-7b").value();
  const auto stages = [&](ScheduleKind schedule) {
    return priced_v(model, both_ways_plan(schedule, {8, 8, 8, 8}), 16, "hai-llm")
        .costs.memory.stages;
  };
  const std::vector<MemoryBreakdown> both = stages(ScheduleKind::dualpipe);
  const std::vector<MemoryBreakdown> line = stages(ScheduleKind::one_f_one_b);
  for (const std::size_t rank : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
    const std::size_t mirror = 3 - rank;
    INFO("rank " << rank);
    const auto twice = [&](Bytes MemoryBreakdown::*part) {
      return (line[rank].*part + line[mirror].*part).in(kByte);
    };
    CHECK(both[rank].weights.in(kByte) == Approx(twice(&MemoryBreakdown::weights)));
    CHECK(both[rank].gradients.in(kByte) == Approx(twice(&MemoryBreakdown::gradients)));
    CHECK(both[rank].optimizer.in(kByte) == Approx(twice(&MemoryBreakdown::optimizer) / 2));
  }
}

}  // namespace echelon
