// Small random jobs for properties of the search: drawn from a seed, the same on every machine.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "planner/space/request.hpp"
#include "tests/support/numbers.hpp"
#include "topologies/description/catalog.hpp"

namespace echelon::random_jobs {

struct RandomJob {
  PlanRequest request;
  bool in_catalog = true;  ///< its cluster; the model can be written to a file
};

template <class T, std::size_t n>
const T& one_of(Numbers& draw, const std::array<T, n>& values) {
  return values[draw.below(n)];
}

/// Published models of at most 16 billion parameters: dense, with experts, with latent attention,
/// with windows.
inline constexpr std::array<const char*, 14> kModels = {
    "gpt2",       "gpt2-xl",   "gpt3-1.3b", "llama3.2-1b", "llama2-7b",        "qwen3-0.6b",
    "qwen2.5-3b", "gemma2-2b", "phi-2",     "bloom-7b1",   "deepseek-v2-lite", "olmoe-7b",
    "mistral-7b", "gemma3-1b"};

/// A model of 2 to 8 layers with round shapes, one in three with experts.
inline ModelSpec made_up_model(Numbers& draw) {
  ModelSpec model = load_model("llama3.2-1b").value();
  model.name = "made-up";
  model.layers = 2 + draw.upto(6);
  model.hidden = 1024 * (1 + draw.upto(3));
  model.heads = one_of(draw, std::array{6, 8, 16, 24});
  model.kv_heads = model.heads / one_of(draw, std::array{1, 2});
  model.head_dim = 64 * (1 + draw.upto(1));
  model.ffn_hidden = model.hidden * (2 + draw.upto(2));
  model.tied_embeddings = draw.coin();
  if (draw.below(3) == 0) {
    const int experts = 4 << draw.upto(2);
    model.moe = {.experts = experts,
                 .experts_per_token = 1 + draw.upto(1),
                 .expert_ffn_hidden = model.hidden / 2,
                 .shared_ffn_hidden = draw.coin() ? model.hidden : 0,
                 .first_dense_layers = draw.upto(1)};
  }
  return model;
}

struct ClusterSize {
  const char* name;
  int gpus;
};
/// Parts of a node, nodes, several nodes, parts and several of NVLink domains.
inline constexpr std::array<ClusterSize, 22> kClusters = {
    {{"dgx-h100", 8},      {"dgx-h100", 24},    {"dgx-a100", 6},   {"dgx-a100", 16},
     {"dgx-a100-40gb", 8}, {"dgx-b200", 16},    {"dgx-h200", 4},   {"dgx-h800", 16},
     {"l40s", 16},         {"rtx-4090", 8},     {"a100-pcie", 16}, {"h100-pcie", 4},
     {"aws-p4d", 16},      {"aws-p3dn", 8},     {"azure-ndv5", 8}, {"gcp-a3-mega", 16},
     {"gb200-nvl72", 12},  {"gb300-nvl72", 16}, {"dgx-h100", 32},  {"dgx-b300", 64},
     {"gb200-nvl72", 144}, {"dgx-h200", 48}}};

/// Two nodes or more of 1 to 4 GPUs, with NVLink or without, one NIC per GPU.
inline ClusterTopology made_up_cluster(Numbers& draw) {
  const char* gpu =
      one_of(draw, std::array{"h100-sxm5-80gb", "a100-sxm4-40gb", "l40s", "b200-sxm"});
  UniformMachine machine{.name = "made-up",
                         .gpu = load_gpu(gpu, "gpu").value().spec,
                         .gpus_per_node = 1 + draw.upto(3),
                         .nvlink = {},
                         .pcie = 25_GBps * (1 + draw.upto(2)),
                         .nic = 100_Gbps * (1 + draw.upto(3)),
                         .nodes_per_domain = 1};
  if (draw.coin()) {
    machine.nvlink = 150_GBps * (1 + draw.upto(3));
    machine.nodes_per_domain = 1 + draw.upto(1);
  }
  const std::int64_t domain = machine.gpus_per_node * machine.nodes_per_domain;
  return ClusterTopology::of(describe(machine).value(), domain * (2 + draw.upto(1))).value();
}

/// Half of them megatron-core.
inline constexpr std::array<const char*, 12> kFrameworks = {
    "megatron-core", "megatron-core", "megatron-core", "megatron-core",
    "megatron-core", "megatron-core", "megatron-2021", "nanotron",
    "torchtitan",    "llm-foundry",   "deepspeed",     "echelon"};

/// A pin of one axis, as users do it: a degree, a stage of ZeRO, a schedule.
inline void pin_one(Numbers& draw, PlanConstraints& pins) {
  switch (draw.below(8)) {
    case 0: return pins.pin<&ParallelPlan::tp>(1 << draw.upto(2));
    case 1: return pins.pin<&ParallelPlan::pp>(1 << draw.upto(2));
    case 2: return pins.pin<&ParallelPlan::cp>(1 + draw.upto(1));
    case 3: return pins.pin<&ParallelPlan::microbatch>(1 + draw.upto(1));
    case 4: return pins.pin<&ParallelPlan::zero>(draw.upto(3));
    case 5: return pins.pin<&ParallelPlan::offload_optimizer>(0.0);
    case 6: return pins.pin<&ParallelPlan::schedule>(ScheduleKind::one_f_one_b);
    // Not `full`, which pins every layer: a pin of the number of layers lifts that one.
    default: return pins.pin<&ParallelPlan::recompute>(Recompute::none);
  }
}

/// Memory in which the choice of a plan matters: around what the states need when all ranks share
/// them (18 bytes per parameter, the count of bf16 with fp32 master weights).
inline Bytes scarce_memory(Numbers& draw, const PlanRequest& request) {
  const double states = 18 * static_cast<double>(request.model.parameters());
  const Bytes each{states / request.cluster.gpus() * draw.between(0.7, 2.5)};
  const Bytes wanted = 3_GiB + each;
  return std::floor(std::min(wanted, request.cluster.gpu().memory - 2_GiB).in(1_MiB)) * 1_MiB;
}

/// `framework`: the job is for it, whichever the seed draws.
inline RandomJob random_job(std::uint64_t seed, std::string_view framework = "") {
  Numbers draw(seed);
  ModelSpec model =
      draw.below(3) == 0 ? made_up_model(draw) : load_model(one_of(draw, kModels)).value();
  const bool in_catalog = draw.below(5) > 0;
  const ClusterSize& size = one_of(draw, kClusters);
  ClusterTopology cluster =
      in_catalog ? ClusterTopology::load(size.name, size.gpus).value() : made_up_cluster(draw);
  const std::string_view drawn = one_of(draw, kFrameworks);
  const std::string_view wanted = framework.empty() ? drawn : framework;
  RandomJob job{.request = {.model = std::move(model),
                            .job = {},
                            .cluster = std::move(cluster),
                            .framework = find_framework(wanted).value(),
                            .calibration = {}},
                .in_catalog = in_catalog};
  PlanRequest& r = job.request;
  r.calibration = pick_calibration(r.cluster.gpu(), r.framework).value();
  r.job.sequence = std::min(512 << draw.upto(3), r.model.max_positions);
  r.job.global_batch = r.cluster.gpus() * one_of(draw, std::array{1, 2, 3, 4, 6});
  r.job.flash_attention = draw.below(4) > 0;
  const std::array recipes = {r.framework.default_precision, r.framework.default_precision,
                              std::string("bf16:adam-8bit"), std::string("fp8")};
  r.job.precision = find_precision(one_of(draw, recipes)).value();
  if (!(r.cluster.gpu().peak(r.job.precision.compute) > FlopsPerSecond{})) {
    r.job.precision = find_precision("fp16").value();
  }
  // Known to be wrong with frameworks that allocate blocks ahead: memory of chunks of unequal size
  // (StageModel::saved_block), and of stages that differ in layers (StageModel::zero_buffers), so
  // that plans are listed that do not fit.
  if (draw.coin() && !r.framework.fixed_blocks) r.max_memory = scarce_memory(draw, r);
  for (int pins = draw.upto(2); pins > 0; --pins) pin_one(draw, r.constraints);
  if (r.framework.fixed_blocks) {
    r.constraints.pin<&ParallelPlan::schedule>(ScheduleKind::one_f_one_b);
  }
  return job;
}

}  // namespace echelon::random_jobs
