// Echelon's own runtime, and other trainers without Python.
#include <array>

#include "core/framework/tables.hpp"

namespace echelon {

namespace {

constexpr std::array kOwnDefaults = {
    FrameworkDefaults{.software = "echelon",
                      .why = "the same software",
                      .zero = 1,
                      .split = StageSplit::ends_hold_fewer},
    FrameworkDefaults{.software = "llmq",
                      .same_code = false,
                      .why = "a C++ trainer, like our runtime",
                      .zero = 1},
    FrameworkDefaults{.software = "surogate",
                      .same_code = false,
                      .why = "a C++ trainer from llmq, like our runtime",
                      .zero = 1},
    FrameworkDefaults{
        .software = "llm.c", .same_code = false, .why = "a C trainer, like our runtime", .zero = 1},
};

/// In all formats that the runtime trains in, on cores too: runtime/cpu/attention.cpp,
/// runtime/cuda/attention/attention.cpp.
constexpr std::array kOwnAttention = {FlashKernel{.widest_number = 8}};

constexpr std::array kOwnRules = {
    FrameworkRule{RulePart::degrees,
                  [](const ModelSpec& m, const ParallelPlan& p) {
                    return m.moe.experts > 0 && p.etp != p.tp;
                  },
                  "etp other than tp: every tensor-parallel rank has a part of every expert",
                  "runtime/model/chunk_experts.cpp"},
};

}  // namespace

Framework own_runtime() {
  Framework f;
  f.name = "echelon";
  f.kernels = KernelLibrary::own;
  f.source = "Echelon's own runtime: C++ launch path, fused loss, recomputed layers per stage";
  f.dropout = false;
  f.flash_kernels = kOwnAttention;
  f.materialised_attention = false;
  f.zero23_with_pipeline = true;
  f.replays_passes = true;       // runtime/cuda/queue/graph_cache.hpp
  f.awaits_first_gather = true;  // runtime/training/training_device.cpp, await_updated
  f.cp_ring = f.cp_all_to_all = true;
  f.slices_per_context_rank = 1;   // by all-to-all, attention runs over whole sequences
  f.packs_heads = true;            // runtime/model/chunk_context.cpp
  f.latents_of_all_tokens = true;  // runtime/model/chunk_latent.cpp
  f.per_stage_recompute = true;
  f.zero_bubble = true;
  f.mixed_recompute = true;
  f.hybrid_shard[1] = f.hybrid_shard[2] = f.hybrid_shard[3] = true;
  f.any_layout = true;
  f.microbatch_groups = true;                          // costmodel/schedule/compute_order.cpp
  f.remakes_pointwise = true;                          // runtime/model/chunk_layout.hpp
  f.backward_by_kernels = true;                        // runtime/model/chunk_layer.cpp
  f.trains_fp16 = false;                               // runtime/training: no loss is scaled
  f.experts_take_tp = f.splits_experts_as_mlp = true;  // runtime/model/chunk_experts.cpp
  f.experts_need_sequence_parallel = false;
  f.saves_expert_output = f.balances_experts = false;
  f.product_per_expert = true;
  f.awaits_counts = true;  // runtime/model/chunk_experts.cpp, exchange_of
  f.expert_parallel = true;
  f.fixed_blocks = true;
  f.trains_adapters = "plan run";
  f.adapts_dense_alone = f.replicates_adapters = true;  // runtime/model/chunk_adapters.cpp
  f.loss_rows = 4096;                                   // runtime/model/chunk_layout.cpp
  f.logits_bytes = 2;
  f.loss_traffic = 8;
  f.defaults = kOwnDefaults;
  f.rules = kOwnRules;
  return f;
}

}  // namespace echelon
