// Memory that stays allocated when the host runs ahead of its device.
#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/cost_model.hpp"
#include "costmodel/schedule/lower_plan.hpp"
#include "costmodel/time/stage_model.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

struct HeldCase {
  int pp = 4;
  int layers = 5;  ///< of the first stage
  int microbatches = 16;
  int microbatch = 2;
  int after = 2;
};

/// Tensors of full sequence length on the first stage of a nanotron pipeline at tp 8.
double tensors_held(const HeldCase& c) {
  const ModelSpec model = load_model("llama2-7b").value();
  const ClusterTopology cluster = ClusterTopology::load("dgx-h100", 8 * c.pp).value();
  Framework framework = find_framework("nanotron").value();
  framework.pending_after = c.after;
  Calibration calibration = prior_calibration(cluster.gpu(), framework).value();
  calibration.pending_collective_share = 1;
  TrainingJob job;
  job.sequence = 2048;
  job.global_batch = c.microbatches * c.microbatch;
  job.precision = find_precision(framework.default_precision).value();
  ParallelPlan plan;
  plan.tp = 8;
  plan.pp = c.pp;
  plan.microbatch = c.microbatch;
  plan.sequence_parallel = true;
  plan.layers_per_stage.assign(static_cast<std::size_t>(c.pp), c.layers);
  plan.recompute_layers.assign(static_cast<std::size_t>(c.pp), 0);
  const CostModel cost_model(model, job, cluster, framework, calibration);
  const ShardingCosts costs = cost_model.sharding_costs(sharding_of(plan));
  const StageModel stages(cost_model, plan, costs);
  Stage first;
  first.layers.dense = c.layers;
  const Bytes tensor{2.0 * c.microbatch * 2048 * model.hidden};
  return stages.held(first) / tensor;
}

}  // namespace

// nanotron's 1B model, 5 layers on the first of 4 stages: 19 to 22 tensors in the published peaks.
TEST_CASE("a filling pipeline holds two tensors per layer of all microbatches but two") {
  CHECK(tensors_held({.pp = 4, .layers = 5}) == Approx(2 * 5 * 2));
  CHECK(tensors_held({.pp = 3, .layers = 5}) == Approx(2 * 5));
}

TEST_CASE("with two stages the host waits in every microbatch and nothing is held") {
  CHECK(tensors_held({.pp = 2, .layers = 10}) == 0);
  CHECK(tensors_held({.pp = 1, .layers = 10}) == 0);
  CHECK(tensors_held({.pp = 4, .layers = 5, .microbatches = 2}) == 0);
}

// 41 to 46 tensors, for 3 and for 9 layers per stage, and for any microbatch.
TEST_CASE("a full launch queue bounds the held memory, whatever the depth and the microbatch") {
  CHECK(tensors_held({.pp = 8, .layers = 5}) == Approx(45));
  CHECK(tensors_held({.pp = 8, .layers = 9}) == Approx(45));
  CHECK(tensors_held({.pp = 8, .layers = 9, .microbatch = 8}) == Approx(45));
}

TEST_CASE("a host without waits holds the tensors of its only microbatch in flight") {
  CHECK(tensors_held({.pp = 1, .layers = 16, .after = 0}) == Approx(32));
  CHECK(tensors_held({.pp = 1, .layers = 32, .after = 0}) == Approx(45));
}

TEST_CASE("the workspace of attention's backward by cuDNN is priced") {
  const auto workspace = [](std::int64_t sequence, int microbatch, Bytes parts,
                            bool deterministic = false) {
    const ModelSpec model = load_model("gpt2").value();
    const ClusterTopology cluster = ClusterTopology::load("dgx-h100", 1).value();
    const Framework framework = find_framework("echelon").value();
    Calibration calibration = prior_calibration(cluster.gpu(), framework).value();
    calibration.attention_parts = parts;
    calibration.attention_deterministic = deterministic ? 1 : 0;
    TrainingJob job;
    job.sequence = static_cast<int>(sequence);
    job.global_batch = microbatch;
    job.precision = find_precision(framework.default_precision).value();
    ParallelPlan plan;
    plan.microbatch = microbatch;
    plan.layers_per_stage = {model.layers};
    plan.recompute_layers = {0};
    const CostModel cost_model(model, job, cluster, framework, calibration);
    return cost_model.price(plan).memory.stages.front().workspace;
  };
  const auto takes = [&](std::int64_t sequence, int microbatch) {
    return workspace(sequence, microbatch, 256_MiB) - workspace(sequence, microbatch, Bytes{});
  };
  // The gradient of q, and statistics.
  CHECK(takes(1024, 1) == (12 * (1024 * 64 + 1024) * 4.0) * kByte);
  CHECK(takes(1024, 64) == (64 * 12 * (1024 * 64 + 1024) * 4.0) * kByte);
  CHECK(takes(32768, 1) == (12 * (32768.0 * 64 + 32768) * 4) * kByte);
  CHECK(takes(131072, 64) == Bytes{});  // above a sixteenth of the GPU: other kernels are used
  // In parts of at most 256 MiB, of heads of one sample; one head that takes more is one part.
  const auto in_parts = [&](std::int64_t sequence, int microbatch) {
    return workspace(sequence, microbatch, 256_MiB, true) -
           workspace(sequence, microbatch, Bytes{});
  };
  CHECK(in_parts(1024, 1) == 1.0 / 8 * 192.375 * 1_MiB);  // slopes of scores
  CHECK(in_parts(1024, 64) <= 256_MiB);
  CHECK(in_parts(1024, 64) > 128_MiB);
  CHECK(in_parts(32768, 1) == (2.0 * 32768 * 32768 + 4.0 * 32768) * kByte);
}

namespace {

/// Memory of a model on one GPU.
MemoryBreakdown on_one_gpu(const Framework& framework, Recompute recompute, int microbatch,
                           int zero = 0) {
  const ModelSpec model = load_model("qwen2.5-3b").value();
  const ClusterTopology cluster = ClusterTopology::load("dgx-h100", 1).value();
  const Calibration calibration = prior_calibration(cluster.gpu(), framework).value();
  TrainingJob job;
  job.sequence = 2048;
  job.global_batch = microbatch;
  job.precision = find_precision(framework.default_precision).value();
  ParallelPlan plan;
  plan.microbatch = microbatch;
  plan.zero = zero;
  plan.layers_per_stage = {model.layers};
  plan.recompute = recompute;
  plan.recompute_layers = {recompute == Recompute::full ? model.layers : 0};
  return CostModel(model, job, cluster, framework, calibration).price(plan).memory.stages.front();
}

Framework with_logits(double bytes) {
  Framework framework = find_framework("megatron-core").value();
  framework.logits_bytes = bytes;
  return framework;
}

}  // namespace

TEST_CASE("the logits are gone when a layer is recomputed") {
  const Bytes few = on_one_gpu(with_logits(0.1), Recompute::full, 4).total();
  const Bytes some = on_one_gpu(with_logits(0.2), Recompute::full, 4).total();
  const Bytes many = on_one_gpu(with_logits(12), Recompute::full, 4).total();
  const Bytes more = on_one_gpu(with_logits(16), Recompute::full, 4).total();
  CHECK(few == some);  // the recomputed layer is larger
  const double logits = 4.0 * 2048 * 151'936;
  CHECK((more - many).in(kByte) == Approx(4 * logits).epsilon(0.01));
  // Nothing is recomputed: the loss's backward needs most.
  const Bytes kept = on_one_gpu(with_logits(0.5), Recompute::none, 4).total();
  CHECK(on_one_gpu(with_logits(1), Recompute::none, 4).total() > kept);
}

TEST_CASE("DeepSpeed's step copies the gradients, unless activations need more") {
  const Framework framework = find_framework("deepspeed").value();
  const MemoryBreakdown small = on_one_gpu(framework, Recompute::full, 1);
  CHECK(small.activations == Bytes{});
  // 2 + 2 + 12 of ZeRO's paper, 2 + 4 of the copies
  const double parameters = small.weights.in(kByte) / 2;
  CHECK((small.workspace - 32_MiB).in(kByte) == Approx(6 * parameters));
  CHECK(small.communication.in(kByte) == Approx(2 * 1e9));
  const MemoryBreakdown large = on_one_gpu(framework, Recompute::none, 16);
  CHECK(large.activations > Bytes{});
  // ZeRO-3 steps a thousand million parameters at a time
  CHECK((on_one_gpu(framework, Recompute::full, 1, 3).workspace - 32_MiB).in(kByte) == Approx(4e9));
}

TEST_CASE("fp8 copies of weights count in layers alone") {
  const Framework framework = find_framework("megatron-core").value();
  const ModelSpec model = load_model("qwen2.5-3b").value();
  const auto weights = [&](const char* precision) {
    Framework other = framework;
    other.default_precision = precision;
    return on_one_gpu(other, Recompute::full, 1).weights.in(kByte);
  };
  const double ends = static_cast<double>(model.hidden) * 151'936;
  const double layers = weights("bf16") / 2 - ends;
  CHECK(weights("fp8") - weights("bf16") == Approx(2 * layers).epsilon(0.02));
  CHECK(weights("fp8:primary-weights") == weights("bf16"));
}

TEST_CASE("unequal chunks keep what the fullest set of chunks in flight keeps") {
  const ModelSpec model = load_model("llama2-7b").value();
  const Framework framework = find_framework("megatron-core").value();
  int unequal = 0;
  for (const std::vector<int>& layers :
       {std::vector{8, 8, 8, 8}, std::vector{7, 9, 9, 7}, std::vector{6, 9, 10, 7}}) {
    const auto pp = static_cast<int>(layers.size());
    const ClusterTopology cluster = ClusterTopology::load("dgx-h100", 8 * pp).value();
    const Calibration calibration = prior_calibration(cluster.gpu(), framework).value();
    for (const int vpp : {2, 3, 4, 6}) {
      // Groups and microbatches: whole last groups, and ones of four and more.
      for (const auto& [group, microbatches] :
           {std::pair{4, 16}, {5, 14}, {7, 18}, {8, 12}, {8, 16}, {16, 16}}) {
        for (const Recompute recompute : {Recompute::none, Recompute::full}) {
          ParallelPlan plan;
          plan.tp = 8;
          plan.pp = pp;
          plan.vpp = vpp;
          plan.microbatch_group = group;
          plan.schedule = ScheduleKind::interleaved;
          plan.layers_per_stage = layers;
          plan.recompute = recompute;
          plan.recompute_layers.assign(layers.size(), recompute == Recompute::full ? vpp : 0);
          TrainingJob job;
          job.sequence = 2048;
          job.global_batch = microbatches;
          job.precision = find_precision(framework.default_precision).value();
          const CostModel cost_model(model, job, cluster, framework, calibration);
          const ShardingCosts costs = cost_model.sharding_costs(sharding_of(plan));
          const StageModel stages(cost_model, plan, costs);
          const PlanCosts prediction = cost_model.price(plan);
          for (int rank = 0; rank < pp; ++rank) {
            // One layer of each chunk is recomputed and keeps its input, the others everything.
            std::vector<double> kept;
            for (int c = 0; c < vpp; ++c) {
              const int size = layers_in_chunk(plan, rank, c);
              const int again = recompute == Recompute::full ? std::min(1, size) : 0;
              kept.push_back(
                  ((size - again) * costs.dense.saved + again * costs.layer_input).in(kByte));
              if (c > 0 && kept.back() != kept.front()) ++unequal;
            }
            double now = 0;
            double most = 0;
            const PipelineShape shape = shape_of(plan, job.global_batch);
            for (const ComputeStep& step : compute_order(shape, rank)) {
              const double each = kept[static_cast<std::size_t>(step.chunk)];
              most = std::max(most, now += step.op == Op::forward ? each : -each);
            }
            // The logits are gone before a layer, which is larger, is recomputed.
            const bool logits = rank == pp - 1 && recompute == Recompute::none;
            if (logits) most += costs.head_saved.in(kByte);
            INFO("rank " << rank << " vpp " << vpp << " group " << group << " of "
                         << job.global_batch << ", " << name_of(recompute));
            CHECK(prediction.memory.stages[static_cast<std::size_t>(rank)].activations.in(kByte) ==
                  Approx(most).epsilon(microbatches % group == 0 ? 1e-9 : 0.05));
          }
        }
      }
    }
  }
  CHECK(unequal > 100);
}

// torchtitan's paper (arXiv 2410.06511), tables 6 and 7: Llama 3.1 405B on 512 H100, tp 8, pp 8,
// float8, 82.5 GiB with 1F1B and 72.7 GiB interleaved, full recomputation. A stage of 16 layers is
// 405 G / 64 parameters per rank, of which ZeRO-3 over 8 ranks would leave an eighth.
TEST_CASE(
    "FSDP in a pipeline holds whole fp32 gradients, and gathered weights next to its shards") {
  const ModelSpec model = load_model("llama3-405b").value();
  const ClusterTopology cluster = ClusterTopology::load("dgx-h100", 512).value();
  Framework framework = find_framework("torchtitan").value();
  const Calibration calibration = prior_calibration(cluster.gpu(), framework).value();
  TrainingJob job;
  job.sequence = 8192;
  job.global_batch = 128;
  job.precision = find_precision(framework.default_precision).value();
  ParallelPlan plan;
  plan.tp = plan.pp = plan.dp = 8;
  plan.shard_group = 8;
  plan.sequence_parallel = true;
  plan.recompute = Recompute::full;
  plan.layers_per_stage = {15, 16, 16, 16, 16, 16, 16, 15};
  plan.recompute_layers = plan.layers_per_stage;
  const auto memory_of = [&](int zero) {
    plan.zero = zero;
    return CostModel(model, job, cluster, framework, calibration).price(plan).memory.stages[1];
  };
  const double layers = 16 * layer_parameters_per_rank(model, 8, LayerKind::dense);
  const MemoryBreakdown sharded = memory_of(3);
  CHECK(sharded.weights.in(kByte) == Approx(4 * layers / 8));
  CHECK(sharded.gradients.in(kByte) == Approx(4 * layers));
  CHECK(sharded.optimizer.in(kByte) == Approx(8 * layers / 8));
  CHECK(sharded.communication.in(kByte) > 2 * layers);
  const MemoryBreakdown kept = memory_of(2);
  CHECK(kept.weights.in(kByte) == Approx(4 * layers / 8 + 2 * layers));
  CHECK(kept.gradients.in(kByte) == Approx(sharded.gradients.in(kByte)));

  framework.reduces_once_in_pipeline = false;
  const MemoryBreakdown each = memory_of(3);
  CHECK(each.gradients.in(kByte) == Approx(4 * layers / 8));
  // Without synchronisation between microbatches the gradients are whole, the weights are not.
  framework.accumulates_whole = true;
  CHECK(memory_of(3).gradients.in(kByte) == Approx(4 * layers));
  CHECK(memory_of(3).communication == each.communication);
}

}  // namespace echelon
