// Megatron-DeepSpeed: Megatron-LM of 2021 on DeepSpeed's pipeline and ZeRO.
#include <array>
#include <string>
#include <string_view>

#include "core/framework/model_features.hpp"
#include "core/framework/tables.hpp"

namespace echelon {

namespace {

constexpr std::array kMegatronDeepspeedDefaults = {
    FrameworkDefaults{.software = "megatron-deepspeed",
                      .why = "the same software",
                      .recompute = Recompute::full,
                      .flash_attention = false,
                      .zero = 1,
                      .dropout = 0.1,
                      .precision = "bf16:deepspeed-zero",
                      .fp32_accumulator = "fp32 grad accumulation",
                      .split = StageSplit::ends_hold_fewer},
};

constexpr std::string_view kItsOptions = "Megatron-DeepSpeed 4efb479d, megatron/arguments.py";

constexpr std::array kMegatronDeepspeedRules = {
    FrameworkRule{RulePart::degrees, in_model<has_state_spaces>, "layers with state spaces",
                  kItsOptions},
    FrameworkRule{RulePart::degrees, in_model<has_delta_nets>, "gated delta nets", kItsOptions},
    FrameworkRule{RulePart::degrees, in_model<has_latent_attention>, "latent attention",
                  kItsOptions},
    FrameworkRule{RulePart::degrees, in_model<has_windows>, "attention within a window",
                  kItsOptions},
    FrameworkRule{RulePart::degrees, in_model<has_shared_experts>, "shared experts", kItsOptions},
    FrameworkRule{RulePart::degrees, in_model<has_other_router>,
                  "routers with sigmoid scores, groups, a scaling or a correction",
                  "DeepSpeed edaa7221, deepspeed/moe/sharded_moe.py, TopKGate"},
};

constexpr std::array kMegatronDeepspeedRemarks = {
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec&, const ParallelPlan& p) -> std::string {
                 return p.zero < 2 ? "" : "--no-pipeline-parallel, for ZeRO-2 and ZeRO-3";
               },
               "DeepSpeed edaa7221, deepspeed/runtime/pipe/engine.py:77"},
};

}  // namespace

Framework megatron_deepspeed() {
  Framework f = megatron_2021();  // layers, losses and buffers are Megatron's
  f.name = "megatron-deepspeed";
  f.kernels = KernelLibrary::megatron;
  f.calibrated_as = megatron_2021().name;
  f.source =
      "Megatron-DeepSpeed (4efb479d; BLOOM, arXiv 2211.05100) on DeepSpeed edaa7221: ZeRO-0/1 with "
      "DeepSpeed's 1F1B pipeline, ZeRO-2/3 without; reduction not overlapped with backward";
  f.default_precision = "bf16:deepspeed-zero";
  f.zero_allowed[2] = f.zero_allowed[3] = true;
  f.interleaved = false;  // PipelineModule has no chunks
  // megatron/model/gpt_model.py:463, partition_method='type:transformer'
  f.stage_layers = StageLayers::first_more;
  // DeepSpeed edaa7221, runtime/pipe/engine.py, is_pipe_partitioned: on at tp > 1
  f.scatters_messages = true;
  // megatron/model/gpt_model.py:449: DeepSpeed's pipeline has no recompute method "block"
  f.counts_recomputed_in_pipeline = false;
  f.rules = kMegatronDeepspeedRules;
  f.remark_rules = kMegatronDeepspeedRemarks;
  f.defaults = kMegatronDeepspeedDefaults;
  return f;
}

}  // namespace echelon
