// MosaicML LLM Foundry, and other training on PyTorch's FSDP1.
#include <array>
#include <string_view>

#include "core/framework/tables.hpp"

namespace echelon {

namespace {

constexpr std::array kLlmFoundryDefaults = {
    FrameworkDefaults{.software = "llm-foundry", .why = "the same software", .zero = 3},
    FrameworkDefaults{.software = "fsdp1",
                      .same_code = false,
                      .why = "PyTorch FSDP1, which LLM Foundry wraps",
                      .recompute = Recompute::full,
                      .zero = 3},
};

constexpr std::array<std::string_view, 1> kLlmFoundryNames = {"fsdp1"};

constexpr std::array kLlmFoundryRules = {
    FrameworkRule{
        RulePart::recomputation,
        [](const ModelSpec&, const ParallelPlan& p) { return p.recompute == Recompute::selective; },
        "recomputation of attention's scores alone: it recomputes whole modules",
        "LLM Foundry 8c8dd48f, llmfoundry/models/mpt/modeling_mpt.py:1306, "
        "activation_checkpointing_fn"},
};

constexpr std::array kLlmFoundryRemarks = {
    RemarkRule{
        .kind = RemarkKind::needs,
        .source = "LLM Foundry 8c8dd48f, llmfoundry/models/layers/attention.py, "
                  "flash_attn_fn; llmfoundry/models/hf/hf_base.py:260",
        .of_flash = true,
        .of_precision = [](const PrecisionRecipe& precision, const ParallelPlan&) -> std::string {
          if (precision.compute != Dtype::fp32) return {};
          return "a model of HuggingFace's with attn_implementation sdpa, for flash "
                 "attention in fp32, which MPT's own has not";
        }},
};

}  // namespace

Framework llm_foundry() {
  Framework f;
  f.name = "llm-foundry";
  f.source =
      "MosaicML LLM Foundry (8c8dd48f, llmfoundry/command_utils/train.py) on Composer v0.32 "
      "(composer/distributed/dist_strategy.py): FSDP1 alone, fp32 shards; its configuration has "
      "no tensor, pipeline, context or expert parallelism";
  f.default_precision = "bf16:fsdp-fp32-shards";
  f.tensor_parallel = f.pipeline_parallel = false;
  f.zero_allowed[1] = false;
  f.sequence_parallel = false;
  f.interleaved = false;
  f.trains_adapters = "PEFT";  // LLM Foundry 0.22, docs on peft_config
  f.adapts_each_module = true;
  f.wraps_transformers = true;
  // torch 2.15, torch/distributed/fsdp/_flat_param.py, _get_unflat_views_unaligned: torch.split,
  // whose backward puts the gradients together
  f.unit_copies = UnitCopies::flat_gradient;
  // FSDP1 of accelerate: bitsandbytes 95f9af30, docs/source/fsdp_qlora.md
  f.quantizes_weights = "bitsandbytes";
  f.holds_input_gradients = true;
  // models/mpt/modeling_mpt.py, gen_attention_mask_in_length: attn_uses_sequence_id
  f.packed_documents = true;
  // Those of MPT's attn_impl flash are the package's; models of HuggingFace's, with which FSDP1 is
  // used alone, too, have PyTorch's (models/hf/hf_base.py:260, attn_implementation).
  f.flash_kernels = kTorchAttention;
  f.hybrid_shard[2] = f.hybrid_shard[3] = true;  // FSDP1's HYBRID_SHARD
  f.also_called = kLlmFoundryNames;              // FSDP1 alone, which has the same rules
  f.defaults = kLlmFoundryDefaults;
  f.rules = kLlmFoundryRules;
  f.remark_rules = kLlmFoundryRemarks;
  return f;
}

}  // namespace echelon
