// DeepSpeed's ZeRO and pipeline around eager PyTorch.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/framework/model_features.hpp"
#include "core/framework/tables.hpp"

namespace echelon {

namespace {

constexpr std::array kDeepspeedDefaults = {
    FrameworkDefaults{.software = "deepspeed",
                      .why = "the same software",
                      .recompute = Recompute::full,
                      .zero = 2},
    FrameworkDefaults{.software = "other",
                      .same_code = false,
                      .why = "eager PyTorch, as DeepSpeed runs it",
                      .recompute = Recompute::full},
    FrameworkDefaults{
        .software = "",
        .evident = Evident::splits_optimizer,
        .same_code = false,
        .why = "an unknown software; ZeRO-1 and ZeRO-2 alone are most like DeepSpeed's",
        .zero = 2},
};

/// AutoEP knows the modules of these families; of others it tries all its presets, which name the
/// same modules, and refuses what matches several. Models without a HuggingFace family are of the
/// user's own code.
bool unknown_to_auto_ep(const ModelSpec& m, const ParallelPlan& p) {
  constexpr std::array<std::string_view, 6> kFamilies = {
      "mixtral", "qwen2_moe", "qwen3_moe", "qwen3_5_moe_text", "deepseek_v2", "deepseek_v3"};
  constexpr std::array<std::string_view, 3> kOwnCode = {"", "imported", "table row"};
  if (p.ep == 1) return false;
  return std::ranges::find(kFamilies, m.architecture) == kFamilies.end() &&
         std::ranges::find(kOwnCode, m.architecture) == kOwnCode.end();
}

constexpr std::array kDeepspeedRules = {
    FrameworkRule{RulePart::degrees, unknown_to_auto_ep,
                  "expert parallelism but of Mixtral, Qwen2-MoE, Qwen3-MoE, Qwen3.5-MoE, "
                  "DeepSeek-V2 and DeepSeek-V3 (AutoEP's presets)",
                  "DeepSpeed edaa7221, deepspeed/module_inject/auto_ep_presets/registry.py:21"},
    FrameworkRule{
        RulePart::degrees,
        [](const ModelSpec&, const ParallelPlan& p) { return p.cp > 1 && (p.tp > 1 || p.pp > 1); },
        "context parallelism (Ulysses) together with tensor or pipeline parallelism",
        "Megatron-DeepSpeed 4efb479d, megatron/core/parallel_state.py:146; DeepSpeed "
        "edaa7221, docs/_tutorials/ds-sequence.md:90"},
    FrameworkRule{RulePart::degrees,
                  [](const ModelSpec&, const ParallelPlan& p) {
                    return std::int64_t{p.dp} * p.cp % p.ep != 0;
                  },
                  "experts spread over tensor-parallel ranks: ep divides dp x cp",
                  "DeepSpeed edaa7221, deepspeed/utils/groups.py:568"},
    FrameworkRule{
        RulePart::degrees,
        [](const ModelSpec&, const ParallelPlan& p) { return p.etp != 1 && p.etp != p.tp; },
        "etp other than 1 and tp",
        "DeepSpeed edaa7221, deepspeed/moe/layer.py, enable_expert_tensor_parallelism"},
    FrameworkRule{RulePart::sharding,
                  [](const ModelSpec&, const ParallelPlan& p) {
                    return p.offload_optimizer > 0 && p.offload_optimizer < 1 && p.zero != 3;
                  },
                  "offload of a part of the optimizer below ZeRO-3",
                  "DeepSpeed edaa7221, deepspeed/runtime/zero/config.py:391"},
    FrameworkRule{RulePart::sharding,
                  [](const ModelSpec&, const ParallelPlan& p) {
                    return p.zero == 3 && p.tp > 1 && p.instances() > 1;
                  },
                  "ZeRO-3 over a part of the ranks (MiCS) together with tensor parallelism: its "
                  "groups are made of all ranks",
                  "DeepSpeed 0.19.6, deepspeed/runtime/zero/mics_utils.py:70"},
    // ZeRO and the pipeline take any module; AutoTP splits linear layers, and nothing else of one.
    FrameworkRule{RulePart::degrees, where_tensors_split<has_state_spaces>,
                  "tensor parallelism of layers with state spaces",
                  "DeepSpeed edaa7221, deepspeed/module_inject/auto_tp.py, _replace"},
    FrameworkRule{RulePart::degrees, where_tensors_split<has_delta_nets>,
                  "tensor parallelism of gated delta nets",
                  "DeepSpeed edaa7221, deepspeed/module_inject/auto_tp.py, _replace"},
    FrameworkRule{RulePart::degrees, where_tensors_split<has_sinks>,
                  "tensor parallelism of attention sinks",
                  "DeepSpeed edaa7221, deepspeed/module_inject/tp_plan_converter.py:9"},
    FrameworkRule{
        RulePart::degrees,
        [](const ModelSpec& m, const ParallelPlan& p) { return m.qk_norm_all_heads && p.tp > 1; },
        "tensor parallelism of norms over all heads together",
        "DeepSpeed edaa7221, deepspeed/module_inject/tp_plan_converter.py:9"},
    FrameworkRule{
        RulePart::degrees, replicates_kv_heads,
        "copies of a key/value head on several tensor-parallel ranks: it leaves them idle",
        "DeepSpeed edaa7221, docs/_tutorials/autotp-training.md, Limitations"},
};

constexpr std::array kDeepspeedRemarks = {
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec& m, const ParallelPlan& p) -> std::string {
                 if (p.tp == 1 || m.architecture != "gpt2") return {};
                 return "linear layers: AutoTP refuses HuggingFace's GPT-2, whose are Conv1D";
               },
               "DeepSpeed edaa7221, deepspeed/module_inject/auto_tp.py:245"},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec& m, const ParallelPlan& p) -> std::string {
                 if (p.cp == 1 || (!m.latent() && !has_sinks(m))) return {};
                 return "deepspeed.sequence.layer.DistributedAttention in the model's own code: "
                        "UlyssesSPAttentionHF takes keys and values of one shape, and no sinks";
               },
               "DeepSpeed edaa7221, deepspeed/runtime/sequence_parallel/ulysses_sp.py:300"},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec& m, const ParallelPlan& p) -> std::string {
                 if (p.ep == 1 || (!m.moe.expert_bias && !has_latent_experts(m))) return {};
                 return "deepspeed.moe.layer.MoE in the model's own code: AutoEP has no experts "
                        "with biases or on a latent";
               },
               "DeepSpeed edaa7221, deepspeed/module_inject/auto_ep_presets/base.py, "
               "MoELayerSpec"},
    RemarkRule{RemarkKind::warns,
               [](const ModelSpec& m, const ParallelPlan& p) -> std::string {
                 const bool corrected =
                     m.moe.router_bias && m.moe.router_score == RouterScore::sigmoid;
                 if (p.ep == 1 || !corrected) return {};
                 return "AutoEP does not update the correction of the router's scores";
               },
               "DeepSpeed edaa7221, deepspeed/module_inject/auto_ep_config.py, "
               "_raise_unsupported_load_balance_coeff"},
    // edaa7221 is older: runtime/engine.py, _configure_tensor_parallel_states, refuses stage 3 up
    // to 0.19.3. Four ranks of 0.19.8 with tp 2 and ZeRO-3 trained a Llama of two layers on gloo.
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec&, const ParallelPlan& p) -> std::string {
                 if (p.zero != 3 || p.tp == 1) return {};
                 return "DeepSpeed 0.19.4 or newer, for ZeRO-3 with tensor parallelism, which "
                        "0.19.3 refuses";
               },
               "DeepSpeed 0.19.8, deepspeed/runtime/engine.py:952"},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec&, const ParallelPlan& p) -> std::string {
                 if (p.zero != 3 || p.instances() == 1) return {};
                 return "DeepSpeed 0.19.6 or older, for MiCS, which 0.19.8 refuses";
               },
               "DeepSpeed 0.19.8, deepspeed/runtime/config.py:120"},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec&, const ParallelPlan& p) -> std::string {
                 if (p.pp == 1) return {};
                 return "PipelineModule(partition_method='type:<layer class>')";
               },
               "DeepSpeed edaa7221, deepspeed/runtime/pipe/module.py:412"},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec& m, const ParallelPlan& p) -> std::string {
                 if (m.moe.experts == 0 || p.etp == 1) return {};
                 return "deepspeed.moe.layer.MoE with enable_expert_tensor_parallelism, in the "
                        "model's own code";
               },
               "DeepSpeed edaa7221, deepspeed/moe/layer.py"},
    // AutoTP's groups are made of all ranks, and the engine compares their number with the grid's.
    RemarkRule{
        RemarkKind::needs,
        [](const ModelSpec&, const ParallelPlan& p) -> std::string {
          if (p.pp == 1 || p.tp == 1) return {};
          return "PipeModelDataParallelTopology, and layers that the model's own code splits: "
                 "AutoTP does not split the layers of a PipelineModule";
        },
        "DeepSpeed edaa7221, deepspeed/runtime/engine.py, "
        "_configure_tensor_parallel_states, deepspeed/runtime/pipe/engine.py, __init__"},
};

}  // namespace

Framework deepspeed() {
  Framework f;
  f.name = "deepspeed";
  f.source =
      "DeepSpeed ZeRO (arXiv 1910.02054; edaa7221): 2+2+12 bytes per parameter; ZeRO-2/3 cannot "
      "be combined with its pipeline, ZeRO-3 not with its experts";
  f.default_precision = "bf16:deepspeed-zero";
  // runtime/engine.py, _configure_zero_optimizer: "MoE not supported with Stage 3"
  f.zero3_with_experts = false;
  f.sequence_parallel = false;
  f.experts_need_sequence_parallel = false;
  f.interleaved = false;
  f.stage_layers = StageLayers::first_more;  // runtime/pipe/module.py, _partition_layers, type:
  f.overlaps_gather = false;
  // runtime/pipe/module.py:380, activation_checkpoint_interval: all layers, so many at a time;
  // without a pipeline the model does it (HuggingFace gradient_checkpointing: every block)
  f.counts_recomputed = false;
  f.any_model = true;  // deepspeed.initialize takes a torch.nn.Module
  f.trains_adapters = "PEFT";
  f.adapts_each_module = true;
  f.wraps_transformers = true;
  f.quantizes_weights = "bitsandbytes";  // PEFT 5d602fdb, docs/source/accelerate/deepspeed.md:17
  f.casts_parameters = true;          // edaa7221, runtime/engine.py, _cast_module_mixed_precision
  f.pipeline_needs_own_model = true;  // runtime/pipe/module.py: PipelineModule of LayerSpecs
  f.cp_all_to_all = true;
  f.flash_kernels = kTorchAttention;
  f.context_needs_flash = false;  // sequence/layer.py, DistributedAttention: of any attention
  f.expert_parallel = true;
  f.offload_optimizer = true;
  f.parameter_offload =
      "zero_optimization.offload_param, ZeRO-3";  // runtime/zero/offload_config.py
  f.hybrid_shard[3] = true;                       // MiCS: mics_shard_size
  // runtime/zero/stage_1_and_2.py, step: the gradients of the rank's part are copied into one
  // 16-bit tensor and that one into fp32; stage3.py copies them into fp32 alone.
  f.step_copies[0] = f.step_copies[1] = f.step_copies[2] = 6;
  f.step_copies[3] = 4;
  f.step_group = 1e9;  // runtime/zero/config.py: sub_group_size
  // runtime/zero/config.py: reduce_bucket_size 5e8, two of them with overlap_comm
  f.bucket_buffers = 2 * 5e8;
  f.defaults = kDeepspeedDefaults;
  f.rules = kDeepspeedRules;
  f.remark_rules = kDeepspeedRemarks;
  return f;
}

}  // namespace echelon
