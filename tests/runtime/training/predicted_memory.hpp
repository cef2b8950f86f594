// Compares the memory of a rank that the cost model predicts with what the runtime allocates.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/schedule/lower_plan.hpp"
#include "runtime/cpu/cpu_backend.hpp"
#include "runtime/training/training_device.hpp"
#include "tests/runtime/training/small_models.hpp"
#include "tests/support/catch.hpp"
#include "topologies/import/this_machine.hpp"

namespace echelon::predicted_memory {

inline ModelSpec measured_llama() {
  ModelSpec model = load_model("llama3.2-1b").value();
  model.layers = 8;
  model.hidden = 256;
  model.heads = 8;
  model.kv_heads = 4;
  model.head_dim = 32;
  model.ffn_hidden = 704;
  model.vocab = 1000;
  return model;
}

/// DeepSeek-V3's attention, or with queries from the hidden state V2-Lite's.
inline ModelSpec measured_latent(int q_lora_rank) {
  ModelSpec model = like_deepseek(measured_llama(), {.kv_lora_rank = 64,
                                                     .q_lora_rank = q_lora_rank,
                                                     .qk_nope_head_dim = 32,
                                                     .qk_rope_head_dim = 16,
                                                     .v_head_dim = 40});
  model.name = q_lora_rank > 0 ? "small-deepseek-v3" : "small-deepseek-v2-lite";
  model.constants->rope = {.theta = 10'000};
  return model;
}

struct Grid {
  int tp, pp, vpp, dp, zero;
  bool sequence_parallel;
  Recompute recompute;
  ScheduleKind schedule;
  std::vector<int> layers = {};  ///< per stage; empty: equal ones
  int group = 1;                 ///< microbatches
  int cp = 1;
  int ep = 1;
  int microbatches = 8;  ///< of two samples
  CpComm comm = CpComm::all_to_all;
};

inline std::string describe(const Grid& g) {
  return fmt::format(
      "tp {}{} cp {} {} pp {} vpp {} dp {} zero {} recompute {} schedule {} layers {} group {} ep "
      "{}",
      g.tp, g.sequence_parallel ? " sp" : "", g.cp, name_of(g.comm), g.pp, g.vpp, g.dp, g.zero,
      name_of(g.recompute), name_of(g.schedule), fmt::join(g.layers, ","), g.group, g.ep);
}

/// GPUs, or processor cores for precisions without a described rate on any GPU.
inline ClusterTopology cluster_of(const TrainingJob& job, std::int64_t ranks) {
  if (job.precision.compute != Dtype::fp64) {
    return ClusterTopology::load("dgx-h100", ranks).value();
  }
  const HostFacts host{.cores = 8,
                       .clock_ghz = 3,
                       .clock_source = "test",
                       .flops_per_cycle = 32,
                       .simd_source = "test",
                       .memory = 64_GB};
  return this_machine(host, ranks).value();
}

/// How far a prediction may be off: the larger of a share and of so many buffers of a stage
/// boundary, whose number depends on the timing of the lowered schedule.
struct Tolerance {
  double share = 0.02;
  int boundaries = 1;
};

template <class T>
void check(const ModelSpec& model, const Grid& g, const char* precision, Tolerance tolerance = {},
           const std::optional<Adapters>& adapters = {}) {
  ParallelPlan plan;
  plan.tp = g.tp;
  plan.pp = g.pp;
  plan.vpp = g.vpp;
  plan.dp = g.dp;
  if (model.moe.experts > 0) plan.etp = g.tp;
  plan.ep = g.ep;
  plan.zero = g.zero;
  plan.cp = g.cp;
  if (g.cp > 1) plan.cp_comm = g.comm;
  plan.shard_group = g.dp * g.cp;
  plan.sequence_parallel = g.sequence_parallel;
  plan.recompute = g.recompute;
  plan.schedule = g.schedule;
  plan.microbatch = 2;
  const auto stages = static_cast<std::size_t>(g.pp);
  plan.microbatch_group = g.group;
  plan.layers_per_stage = g.layers;
  if (g.layers.empty()) plan.layers_per_stage.assign(stages, model.layers / g.pp);
  plan.recompute_layers.assign(stages, 0);
  if (g.recompute == Recompute::full) plan.recompute_layers = plan.layers_per_stage;
  TrainingJob job;
  job.sequence = 128;
  job.global_batch = std::int64_t{2} * g.microbatches * g.dp;
  job.precision = find_precision(precision).value();
  job.adapters = adapters;
  const ClusterTopology cluster = cluster_of(job, static_cast<std::int64_t>(plan.gpus()));
  const Framework framework = find_framework("echelon").value();
  Calibration calibration = prior_calibration(cluster.gpu(), framework).value();
  calibration.context = calibration.gemm_workspace = calibration.nccl_per_communicator =
      calibration.nccl_per_peer = Bytes{};
  const CostModel cost_model(model, job, cluster, framework, calibration);
  const PlanCosts prediction = cost_model.price(plan);
  const Schedule schedule = schedule_of(cost_model, plan, prediction.memory.contents);

  RunThreads run_threads;
  const auto backend = cpu_backend<T>(thread_world(run_threads, plan, model), 1);
  Training training;
  training.model = model;
  training.job = job;
  training.plan = plan;
  const TrainingDevice<T> device(run_threads, *backend, schedule, training);
  const ProcessGrid ranks(plan);
  for (int rank = 0; rank < ranks.ranks(); ++rank) {
    const auto stage = static_cast<std::size_t>(ranks.coordinates(rank).pp);
    const MemoryBreakdown& held = device.held(rank);
    const MemoryBreakdown& reported = prediction.memory.stages[stage];
    const double error = reported.total() / held.total() - 1;
    INFO(model.name << ": " << describe(g) << ", stage " << stage);
    INFO(fmt::format(
        "parts held, predicted: weights {} {}, gradients {} {}, optimizer {} {}, "
        "activations {} {}, workspace {} {}, communication {} {}",
        held.weights.in(kByte), reported.weights.in(kByte), held.gradients.in(kByte),
        reported.gradients.in(kByte), held.optimizer.in(kByte), reported.optimizer.in(kByte),
        held.activations.in(kByte), reported.activations.in(kByte), held.workspace.in(kByte),
        reported.workspace.in(kByte), held.communication.in(kByte),
        reported.communication.in(kByte)));
    std::map<std::string_view, int> buffers;
    for (const Buffer& each : schedule.programs[stage].buffers) ++buffers[name_of(each.kind)];
    INFO(fmt::format("buffers {}", buffers));
    // In models this small one buffer can be more than 2 % of a rank's memory. Batches go with it.
    const double rows = static_cast<double>(plan.microbatch) * job.sequence / plan.cp;
    const double wide = width_of(job.precision.compute) * model.hidden + 16;
    const Bytes buffers_off = g.pp > 1 ? tolerance.boundaries * Bytes{wide * rows} : Bytes{};
    const Bytes off = reported.total() - held.total();
    INFO("error " << error);
    CHECK(std::max(off, Bytes{} - off) <= std::max(tolerance.share * held.total(), buffers_off));
  }
}

}  // namespace echelon::predicted_memory
