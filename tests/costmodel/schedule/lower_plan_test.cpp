// Programs of priced plans: sound, complete, with the collectives of the plan's ZeRO stage.
#include "costmodel/schedule/lower_plan.hpp"

#include <array>
#include <optional>
#include <vector>

#include "core/model/model_io.hpp"
#include "core/schedule/schedule_check.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

struct Case {
  const char* model;
  const char* framework;
  int gpus, tp, pp, vpp, zero;
  ScheduleKind kind;
  std::int64_t batch;
  std::optional<Bytes> bucket{};
};

ParallelPlan plan_of(const Case& c, const ModelSpec& model) {
  ParallelPlan p;
  p.tp = c.tp;
  p.pp = c.pp;
  p.vpp = c.vpp;
  p.dp = c.gpus / (c.tp * c.pp);
  p.zero = c.zero;
  p.shard_group = p.dp;
  p.schedule = c.kind;
  p.layers_per_stage.assign(static_cast<std::size_t>(c.pp), model.layers / c.pp);
  p.recompute_layers.assign(static_cast<std::size_t>(c.pp), 0);
  p.bucket = c.bucket;
  return p;
}

struct Lowered {
  Schedule schedule;
  double estimate = 0;
  PlanCosts prediction;
  std::vector<double> buckets;  ///< priced, per pipeline rank
  std::array<std::int64_t, kOps> count{};
  std::int64_t all = 0;
  std::int64_t operator[](Op op) const { return count[static_cast<std::size_t>(op)]; }
};

Lowered lowered(const Case& c) {
  const ModelSpec model = load_model(c.model).value();
  const ClusterTopology cluster = ClusterTopology::load("dgx-h100", c.gpus).value();
  const Framework framework = find_framework(c.framework).value();
  TrainingJob job;
  job.sequence = 1024;
  job.global_batch = c.batch;
  job.precision = find_precision("bf16").value();
  const CostModel cost_model(model, job, cluster, framework,
                             prior_calibration(cluster.gpu(), framework).value());
  const ParallelPlan plan = plan_of(c, model);
  const PlanCosts prediction = cost_model.price(plan);
  Lowered out{schedule_of(cost_model, plan, prediction.memory.contents),
              instructions_of(cost_model, plan),
              prediction,
              {}};
  const ShardingCosts costs = cost_model.sharding_costs(sharding_of(plan));
  const StageModel stages(cost_model, plan, costs);
  for (const Stage& stage : prediction.memory.contents) {
    out.buckets.push_back(stages.traffic(stage).buckets);
  }
  for (const Program& program : out.schedule.programs) {
    for (const Instruction& i : program.instructions) ++out.count[static_cast<std::size_t>(i.op)];
    out.all += static_cast<std::int64_t>(program.instructions.size());
  }
  return out;
}

using enum ScheduleKind;
constexpr Case kCases[] = {
    {"gpt2", "megatron-core", 1, 1, 1, 1, 0, one_f_one_b, 4},
    {"gpt2", "megatron-core", 8, 2, 1, 1, 1, one_f_one_b, 16},
    {"gpt2", "nanotron", 16, 2, 2, 1, 0, one_f_one_b, 32},
    {"gpt2", "megatron-core", 16, 1, 4, 3, 1, interleaved, 32},
    {"llama2-7b", "torchtitan", 8, 1, 4, 1, 2, gpipe, 16},
    {"llama2-7b", "torchtitan", 8, 1, 2, 1, 3, one_f_one_b, 16},
    {"llama2-7b", "torchtitan", 8, 1, 1, 1, 3, one_f_one_b, 16},
    {"llama2-7b", "echelon", 8, 2, 4, 1, 0, zero_bubble_h1, 16},
    {"llama2-7b", "echelon", 16, 1, 4, 1, 2, zero_bubble_h1, 16},
    {"mixtral-8x7b", "megatron-core", 16, 2, 4, 2, 1, interleaved, 16},
};

}  // namespace

TEST_CASE("programs of plans are sound and as long as estimated") {
  for (const Case& c : kCases) {
    CAPTURE(c.model, c.framework, c.gpus, c.pp, c.vpp, c.zero);
    const Lowered l = lowered(c);
    const std::vector<ScheduleFault> faults = check_schedule(l.schedule);
    INFO((faults.empty() ? std::string() : faults.front().what));
    CHECK(faults.empty());
    CHECK(static_cast<double>(l.all) <= l.estimate + 8.0 * c.pp * c.vpp);
    CHECK(l.estimate < 4.0 * static_cast<double>(l.all) + 200);
  }
}

TEST_CASE("a program gathers and reduces as its ZeRO stage requires") {
  const Lowered alone = lowered(kCases[0]);
  CHECK(alone[Op::reduce_gradients] + alone[Op::gather_updated] + alone[Op::send_activation] == 0);
  CHECK(alone[Op::forward] == 4);

  const Lowered one = lowered(kCases[1]);
  CHECK(one[Op::gather_updated] == 1);
  CHECK(one[Op::reduce_gradients] >= 1);
  CHECK(one[Op::reduce_gradients] <= 12);

  const Lowered none = lowered(kCases[2]);
  CHECK(none[Op::gather_updated] == 0);
  CHECK(none[Op::reduce_gradients] >= 2);
  CHECK(none[Op::reduce_tied_embedding] == 2);  // gpt2's embedding, first and last rank

  const Lowered two = lowered(kCases[4]);
  CHECK(two[Op::reduce_gradients] == 4 * 8);  // stages, layers: FSDP in a pipeline, once
  CHECK(lowered(kCases[8])[Op::reduce_gradients] == 4 * 4 * 8);  // … every microbatch
  CHECK(two[Op::gather_parameters] == 0);
  CHECK(two[Op::reduce_tied_embedding] == 0);

  const Lowered three = lowered(kCases[5]);
  CHECK(three.schedule.units == 16);
  CHECK(three[Op::gather_parameters] > 2 * 16);
  CHECK(three[Op::gather_parameters] == three[Op::release_parameters]);
  CHECK(three[Op::gather_updated] == 0);
}

TEST_CASE("the gradient's norm takes a pass over the gradients, as part of the optimizer") {
  const ModelSpec model = load_model("gpt2").value();
  const ClusterTopology cluster = ClusterTopology::load("dgx-h100", 8).value();
  const Framework framework = find_framework("echelon").value();
  TrainingJob job;
  job.sequence = 1024;
  job.global_batch = 16;
  job.precision = find_precision("fp32").value();
  const Calibration rates = prior_calibration(cluster.gpu(), framework).value();
  const CostModel cost_model(model, job, cluster, framework, rates);
  const auto norm_of = [&](int zero) {
    const ParallelPlan plan =
        plan_of({"gpt2", "echelon", 8, 1, 1, 1, zero, one_f_one_b, 16}, model);
    const PlanCosts prediction = cost_model.price(plan);
    const SimulatedStep step = simulate_plan(cost_model, plan, prediction.memory.contents);
    const RankTimes& times = step.costs.ranks.front();
    CHECK((times.norm_reduce + times.optimizer).in(1_us) ==
          Approx(prediction.time.parts.optimizer.in(1_us)));
    return times.norm_reduce;
  };
  // fp32: four bytes of each parameter; with ZeRO an eighth of them. The remaining time is the
  // all-reduce of one number.
  const double parameters = 124'439'808;
  const BytesPerSecond rate = rates.optimizer_efficiency * cluster.gpu().hbm;
  const Seconds pass = Bytes{4 * parameters} / rate;
  CHECK((norm_of(0) - norm_of(1)) / (7.0 / 8 * pass) == Approx(1).epsilon(0.001));
  CHECK(norm_of(0) > pass);
  CHECK(norm_of(0) < pass + 200_us);
}

TEST_CASE("bytes of a program add up to the model") {
  const ModelSpec model = load_model("llama2-7b").value();
  const Lowered three = lowered(kCases[6]);
  // Every parameter is reduced once per microbatch, in the recipe's width.
  double reduced = 0;
  for (const Instruction& i : three.schedule.programs[0].instructions) {
    if (i.op == Op::reduce_gradients) reduced += static_cast<double>(i.bytes);
  }
  const double width = find_precision("bf16").value().reduced_gradient;
  CHECK(reduced / (2 * width) ==
        Approx(static_cast<double>(model.parameters())).epsilon(0.01));  // padded vocabulary
}

TEST_CASE("the price counts as many buckets of a given size as the program reduces") {
  // A layer of gpt2 has 28 MB of fp32 gradients, one of llama2-7b 810 MB.
  for (const Case& c :
       {Case{"gpt2", "megatron-core", 8, 1, 1, 1, 1, one_f_one_b, 16, 1_MB},
        Case{"gpt2", "megatron-core", 8, 1, 1, 1, 0, one_f_one_b, 16, 100_MB},
        Case{"gpt2", "echelon", 8, 1, 2, 1, 1, one_f_one_b, 16, 60_MB},
        Case{"gpt2", "megatron-core", 16, 1, 4, 3, 1, interleaved, 32, 1_MB},
        Case{"gpt2", "megatron-core", 8, 1, 2, 3, 1, interleaved, 32, 30_MB},
        Case{"llama2-7b", "nanotron", 8, 2, 1, 1, 0, one_f_one_b, 16, 2_GB},
        Case{"llama2-7b", "megatron-core", 8, 1, 2, 1, 1, one_f_one_b, 16, 100_GB}}) {
    CAPTURE(c.model, c.framework, c.pp, c.vpp, c.bucket->in(1_MB));
    const Lowered l = lowered(c);
    for (std::size_t rank = 0; rank < l.schedule.programs.size(); ++rank) {
      int reductions = 0;
      for (const Instruction& i : l.schedule.programs[rank].instructions) {
        if (i.op == Op::reduce_gradients) reductions += l.schedule.units_of(i).count();
      }
      CHECK(l.buckets[rank] == reductions);
    }
    CHECK(check_schedule(l.schedule).empty());
  }
}

TEST_CASE("more and smaller buckets cost latency, and a single bucket is fully exposed") {
  const auto exposed = [](const char* framework, Bytes bucket) {
    const Case c{"llama2-7b", framework, 64, 1, 1, 1, 0, one_f_one_b, 64, bucket};
    return lowered(c).prediction.time.parts.exposed[Axis::dp];
  };
  const auto reduction = [](const char* framework, Bytes bucket) {
    const Case c{"llama2-7b", framework, 64, 1, 1, 1, 0, one_f_one_b, 64, bucket};
    const ModelSpec model = load_model(c.model).value();
    const ClusterTopology cluster = ClusterTopology::load("dgx-h100", c.gpus).value();
    const Framework traits = find_framework(c.framework).value();
    TrainingJob job;
    job.sequence = 1024;
    job.global_batch = c.batch;
    job.precision = find_precision("bf16").value();
    const CostModel cost_model(model, job, cluster, traits,
                               prior_calibration(cluster.gpu(), traits).value());
    const ParallelPlan plan = plan_of(c, model);
    const ShardingCosts costs = cost_model.sharding_costs(sharding_of(plan));
    const StageModel stages(cost_model, plan, costs);
    return stages.traffic({.index = 0, .layers = {model.layers, 0}}).reduce;
  };
  for (const char* framework : {"megatron-core", "nanotron", "echelon"}) {
    CAPTURE(framework);
    const Seconds one = reduction(framework, 1000_GB);
    const Seconds four = reduction(framework, 8 * 810_MB);
    const Seconds all = reduction(framework, 1_MB);
    CHECK(one < four);
    CHECK(four < all);
    // 32 buckets instead of 4: each pays its latency again.
    CHECK((all - one).in(1_us) == Approx(31.0 / 3 * (four - one).in(1_us)).epsilon(1e-6));
    // A single bucket is the last one: none of it overlaps the backward.
    CHECK(exposed(framework, 1000_GB) > exposed(framework, 8 * 810_MB));
  }
}
