// HAI-LLM, DeepSeek's own framework, as the report on DeepSeek-V3 describes it. Its program is not
// public; of its parts DualPipe, DeepEP and DeepGEMM are.
#include <array>
#include <string>

#include "core/framework/tables.hpp"

namespace echelon {

namespace {

constexpr std::array kHaiLlmDefaults = {
    FrameworkDefaults{
        .software = "hai-llm", .why = "the same software, from its report", .zero = 1},
};

constexpr std::array kHaiLlmRules = {
    FrameworkRule{RulePart::schedule,
                  [](const ModelSpec&, const ParallelPlan& p) {
                    return p.overlap_ep && p.schedule != ScheduleKind::dualpipe;
                  },
                  "overlap of expert communication without --schedule dualpipe, whose pairs of a "
                  "forward and a backward hide it",
                  "DeepSeek-V3, arXiv 2412.19437, section 3.2.1"},
};

constexpr std::array kHaiLlmRemarks = {
    RemarkRule{RemarkKind::warns,
               [](const ModelSpec&, const ParallelPlan& p) -> std::string {
                 if (p.schedule != ScheduleKind::dualpipe) return {};
                 return "HAI-LLM is not public: the program of its DualPipe is, to be called from "
                        "a training loop of one's own that sums the gradients of both copies";
               },
               "deepseek-ai/DualPipe @3da1bbe, examples/example_dualpipe.py"},
};

}  // namespace

Framework hai_llm() {
  Framework f = megatron_core();  // layers and kernels as of Megatron-Core, whose rates it takes
  f.name = "hai-llm";
  f.calibrated_as = megatron_core().name;
  f.trains_adapters = {};
  f.source =
      "HAI-LLM as the report on DeepSeek-V3 describes it (arXiv 2412.19437, sections 3.2 and 3.3): "
      "DualPipe, experts over nodes with its own dispatch, ZeRO-0/1, no tensor parallelism, 16-bit "
      "moments; kernels as fast as Megatron-Core's";
  f.default_precision = "bf16:adam-bf16-states";  // section 3.3.3, "Low-Precision Optimizer States"
  f.zero_allowed[2] = f.zero_allowed[3] = false;
  f.hybrid_shard[1] = f.hybrid_shard[2] = f.hybrid_shard[3] = false;
  f.sparse_attention = false;  // DeepSeek-V3.2's, whose training no source describes
  f.tensor_parallel = f.sequence_parallel = false;  // section 3.2, "without using costly" tp
  f.experts_take_tp = false;
  f.cp_ring = f.cp_all_to_all = f.cp_all_gather = false;
  f.interleaved = f.microbatch_groups = false;
  f.dualpipe = true;  // section 3.2.1; deepseek-ai/DualPipe @3da1bbe, dualpipe/dualpipe.py
  f.rank_orders = f.any_layout = f.offload_optimizer = false;
  f.graphs_of_layers = f.graphs_of_step = false;
  f.prediction_modules = true;  // section 2.2
  f.unfused_scaled_rotation = false;
  f.overlaps_shared_experts = false;  // beside another microbatch, section 3.2.1
  f.fsdp_is_another_wrapper = false;
  // deepseek-ai/DeepEP, which was taken out of it
  f.dispatchers[static_cast<std::size_t>(Dispatcher::allgather)] = false;
  f.dispatchers[static_cast<std::size_t>(Dispatcher::hybridep)] = false;
  f.fp8_dispatch = true;  // section 3.3.3, "Low-Precision Communication"
  // sections 3.2.3 and 3.3.3: norms and up projections; the output of SwiGLU
  f.recompute_modules = {RecomputeModule::layernorm, RecomputeModule::mla_up_proj,
                         RecomputeModule::moe_act};
  f.saves_fp8_activation_input = true;  // section 3.3.3, "Low-Precision Activation"
  f.gradients_as_reduced = false;       // summed in fp32, section 3.3.1
  f.dummy_weight_gradients = false;     // TransformerEngine's
  f.defaults = kHaiLlmDefaults;
  f.rules = kHaiLlmRules;
  f.remark_rules = kHaiLlmRemarks;
  return f;
}

}  // namespace echelon
