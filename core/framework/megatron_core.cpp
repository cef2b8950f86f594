// Megatron-Core and what trains with it.
#include <array>

#include "core/framework/tables.hpp"

namespace echelon {

namespace {

constexpr std::array kMegatronCoreDefaults = {
    FrameworkDefaults{.software = "megatron-core",
                      .why = "the same software",
                      .zero = 1,
                      .split = StageSplit::ends_hold_fewer},
    FrameworkDefaults{.software = "nemo",
                      .why = "NeMo trains with Megatron Core",
                      .zero = 1,
                      .split = StageSplit::ends_hold_fewer},
    FrameworkDefaults{.software = "nemo-mlperf",
                      .why = "NeMo as tuned for MLPerf trains with Megatron Core",
                      .zero = 1,
                      .split = StageSplit::ends_hold_fewer},
    FrameworkDefaults{.software = "megatron",
                      .same_code = false,
                      .why = "Megatron-LM forks of 2022-2023, nearer to Core than to 2021"},
    FrameworkDefaults{.software = "maxtext",
                      .same_code = false,
                      .why = "JAX with the same fused kernels; its default remat policy is full",
                      .recompute = Recompute::full,
                      .zero = 3,
                      .precision = "bf16:fsdp-fp32-shards"},  // fp32 weights, 16-bit copies
    FrameworkDefaults{
        .software = "",
        .evident = Evident::splits_model,
        .same_code = false,
        .why = "an unknown software; most that split models do it as Megatron Core does",
        .zero = 1},
};

}  // namespace

Framework megatron_core() {
  Framework f;
  f.name = "megatron-core";
  f.source =
      "Megatron-Core with TransformerEngine: distributed optimizer shards master weights "
      "and moments, fp32 main gradients, one dummy weight gradient per GEMM shape; "
      "ZeRO-2/3 is Megatron-FSDP, priced without pipeline stages";
  f.dummy_weight_gradients = true;
  f.saves_fp8_inputs = true;  // TransformerEngine's Linear: inputmat is saved quantised
  f.cp_ring = f.cp_all_to_all = true;
  f.expert_parallel = true;
  f.rank_orders = true;
  f.microbatch_groups = true;  // --microbatch-group-size-per-virtual-pipeline-stage
  f.offload_optimizer = true;
  // --num-distributed-optimizer-instances, for Megatron-FSDP with --outer-dp-sharding-strategy
  f.hybrid_shard[1] = f.hybrid_shard[2] = f.hybrid_shard[3] = true;
  f.any_layout = true;            // --pipeline-model-parallel-layout
  f.gradients_as_reduced = true;  // one buffer of gradients; FSDP's shards stay fp32
  f.defaults = kMegatronCoreDefaults;
  return f;
}

}  // namespace echelon
