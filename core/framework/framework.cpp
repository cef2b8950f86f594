#include "core/framework/framework.hpp"

#include <fmt/format.h>

#include "core/base/did_you_mean.hpp"

namespace echelon {
namespace {

std::vector<Framework> make_stacks() {
  std::vector<Framework> all;
  {
    Framework s;
    s.name = "megatron-core";
    s.source =
        "Megatron-Core with TransformerEngine: distributed optimizer shards master weights "
        "and moments, fp32 main gradients, one dummy weight gradient per GEMM shape; "
        "ZeRO-2/3 is Megatron-FSDP, priced without pipeline stages";
    s.dummy_weight_gradients = true;
    s.saves_fp8_inputs = true;  // TransformerEngine's Linear: inputmat is saved quantised
    s.cp_ring = s.cp_all_to_all = true;
    s.expert_parallel = true;
    s.rank_orders = true;
    s.offload_optimizer = true;
    // --num-distributed-optimizer-instances, for Megatron-FSDP with --outer-dp-sharding-strategy
    s.hybrid_shard[1] = s.hybrid_shard[2] = s.hybrid_shard[3] = true;
    s.any_layout = true;  // --pipeline-model-parallel-layout
    all.push_back(s);
  }
  {
    Framework s;
    s.name = "megatron-2021";
    s.source =
        "Megatron-LM of the SC'21 and sequence-parallel papers (arXiv 2104.04473, "
        "2205.05198), Megatron-DeepSpeed: ZeRO-0/1, reduction not overlapped with backward";
    s.zero_allowed[2] = s.zero_allowed[3] = false;
    s.overlaps_dp = false;
    s.overlaps_gather = false;
    all.push_back(s);
  }
  {
    Framework s;
    s.name = "nanotron";
    s.source =
        "nanotron: bf16 gradients beside an fp32 accumulator (20 bytes per parameter), "
        "ZeRO-0/1, sequence parallel whenever tp > 1, gradients reduced beside the backward at "
        "ZeRO-0 alone, parameter gather not overlapped, no interleaving";
    s.default_precision = "bf16:nanotron";
    s.zero_allowed[2] = s.zero_allowed[3] = false;
    s.sequence_parallel_always = true;
    s.interleaved = false;
    // trainer.py, make_ddp: only ZeRO-0 wraps the model in DDP, whose hook reduces fp32 gradients
    // beside the backward; with ZeRO-1 sync_gradients_across_dp follows it.
    s.reduces_in_ddp = true;
    s.overlaps_gather = false;
    s.overlaps_tp_backward = false;
    s.gather_buffers = 2;
    s.zero1_gather_local = 2;
    s.zero1_gather_shard = 2;
    // fp32 copy, its shifted copy that becomes the softmax, the bf16 logits
    s.logits_bytes = 10;
    s.saves_gate_output = true;       // GLUActivation: act(gate) * up
    s.reduces_own_gradients = false;  // DDP's 16-bit buckets exist only for dp > 1
    // differentiable_reduce_scatter_sum: its full-sequence input goes to NCCL's stream, twice a
    // layer, and PyTorch returns the block when that stream has passed it
    s.pending_collective_buffers = 2;
    // The host runs ahead while the pipeline fills, but for the microbatch it hands over and the
    // one whose gradient it waits for, until the queue of kernel launches is full: 41 to 46
    // tensors in the published peaks at tp 16, whatever the model, its depth and the microbatch.
    s.pending_after = 2;
    s.pending_at_most = 45;
    all.push_back(s);
  }
  {
    Framework s;
    s.name = "torchtitan";
    s.source =
        "torchtitan: FSDP2 (ZeRO-3, or ZeRO-2 when weights are not resharded after "
        "forward) with fp32 shards; combines with pipeline stages; no ZeRO-1";
    s.default_precision = "bf16:fsdp-fp32-shards";
    s.zero_allowed[1] = false;
    s.zero23_with_pipeline = true;
    s.cp_ring = true;
    s.expert_parallel = true;
    s.sequence_parallel_always = true;
    s.saves_gate_output = true;  // F.silu(w1(x)) * w3(x), unless compiled
    // activation_checkpoint "selective", option "op": attention and every second mm are kept
    s.selective_per_operator = true;
    // torch's cross entropy: bf16 logits and their gradient, fp32 copy, log-softmax, gradient
    s.logits_bytes = 16;
    // parallelism.data_parallel_replicate_degree and module_fqns_per_model_part
    s.hybrid_shard[2] = s.hybrid_shard[3] = true;
    s.any_layout = true;
    all.push_back(s);
  }
  {
    Framework s;
    s.name = "llm-foundry";
    s.source =
        "MosaicML LLM Foundry (8c8dd48f, llmfoundry/command_utils/train.py) on Composer v0.32 "
        "(composer/distributed/dist_strategy.py): FSDP1 alone, fp32 shards; its configuration has "
        "no tensor, pipeline, context or expert parallelism";
    s.default_precision = "bf16:fsdp-fp32-shards";
    s.tensor_parallel = s.pipeline_parallel = false;
    s.zero_allowed[1] = false;
    s.sequence_parallel = false;
    s.interleaved = false;
    s.hybrid_shard[2] = s.hybrid_shard[3] = true;  // FSDP1's HYBRID_SHARD
    all.push_back(s);
  }
  {
    Framework s;
    s.name = "deepspeed";
    s.source =
        "DeepSpeed ZeRO (arXiv 1910.02054; edaa7221): 2+2+12 bytes per parameter; ZeRO-2/3 cannot "
        "be combined with its pipeline, ZeRO-3 neither with its tensor parallelism nor with its "
        "experts";
    s.default_precision = "bf16:deepspeed-zero";
    // docs/_tutorials/autotp-training.md: ZeRO stage 0, 1, or 2; runtime/engine.py,
    // _configure_zero_optimizer: "MoE not supported with Stage 3"
    s.zero3_with_tensor = s.zero3_with_experts = false;
    s.sequence_parallel = false;
    s.interleaved = false;
    s.overlaps_gather = false;
    s.cp_all_to_all = true;
    s.expert_parallel = true;
    s.offload_optimizer = true;
    s.hybrid_shard[3] = true;  // MiCS: mics_shard_size
    all.push_back(s);
  }
  {
    Framework s;
    s.name = "echelon";
    s.source = "Echelon's own runtime: C++ launch path, fused loss, recomputed layers per stage";
    s.dropout = false;
    s.materialised_attention =
        false;  // runtime/cpu/attention.cpp, runtime/cuda/attention/attention.cpp
    s.zero23_with_pipeline = true;
    s.per_stage_recompute = true;
    s.zero_bubble = true;
    s.mixed_recompute = true;
    s.hybrid_shard[1] = s.hybrid_shard[2] = s.hybrid_shard[3] = true;
    s.any_layout = true;
    s.remakes_pointwise = true;  // runtime/model/chunk_layout.hpp
    s.fixed_blocks = true;
    s.loss_rows = 1024;
    s.logits_bytes = 2;
    s.loss_traffic = 8;
    all.push_back(s);
  }
  return all;
}

}  // namespace

std::string why_no_buckets(const Framework& stack, const ParallelPlan& plan) {
  if (plan.dp == 1 && plan.cp == 1) return "dp 1: no gradients are reduced";
  if (plan.zero >= 2) {
    return fmt::format("ZeRO-{}: gradients are reduced layer by layer", plan.zero);
  }
  if (!stack.overlaps_dp) return fmt::format("{}, which reduces all at once", stack.name);
  if (stack.reduces_in_ddp && plan.zero > 0) {
    return fmt::format("{} at ZeRO-{}, which reduces all at once", stack.name, plan.zero);
  }
  if (!plan.overlap_dp) return "no overlap of dp: one reduction follows the backward";
  return {};
}

const std::vector<Framework>& frameworks() {
  static const std::vector<Framework> all = make_stacks();
  return all;
}

Result<Framework> find_framework(std::string_view name) {
  std::vector<std::string> known;
  for (const Framework& stack : frameworks()) {
    if (stack.name == name) return stack;
    known.push_back(stack.name);
  }
  std::string list;
  for (const auto& each : known) list += (list.empty() ? "" : ", ") + each;
  return input_error("--stack", "unknown stack '" + std::string(name) + "'", "one of " + list,
                     did_you_mean(name, known));
}

}  // namespace echelon
