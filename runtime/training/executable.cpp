// The features of a plan that this runtime executes.
#include <fmt/format.h>

#include "core/plan/executable.hpp"
#include "core/plan/plan_fields.hpp"
#include "runtime/training/run.hpp"

namespace echelon {

namespace {

/// Plan files of versions with shapes but without constants.
std::string hint_of(const ModelSpec& model) {
  if (model.constants) return {};
  return "write the plan again with the model: plan predict FILE --model NAME -o NEW";
}

Status check_experts(const MixtureOfExperts& moe, const ParallelPlan& plan) {
  const auto refuse = [](std::string found, std::string expected, std::string hint = {}) {
    return input_error("the plan", std::move(found), std::move(expected), std::move(hint));
  };
  if (plan.etp != plan.tp) {
    return refuse(fmt::format("etp {} with tp {}", plan.etp, plan.tp),
                  fmt::format("etp {}", plan.tp),
                  "every tensor-parallel rank has a part of every expert");
  }
  if (moe.expert_ffn_hidden % plan.tp != 0) {
    return refuse(fmt::format("experts of width {} over tp {}", moe.expert_ffn_hidden, plan.tp),
                  "a tp that divides the width");
  }
  if (moe.shared_ffn_hidden % plan.tp != 0) {
    return refuse(
        fmt::format("shared experts of width {} over tp {}", moe.shared_ffn_hidden, plan.tp),
        "a tp that divides the width");
  }
  if (moe.experts % plan.ep != 0 || plan.dp * plan.cp % plan.ep != 0) {
    return refuse(fmt::format("ep {} of {} experts on {} data-parallel ranks", plan.ep, moe.experts,
                              plan.dp * plan.cp),
                  "an ep that divides both");
  }
  if (plan.zero > 0 && plan.shard_group % plan.ep != 0) {
    return refuse(fmt::format("ep {} with ZeRO groups of {}", plan.ep, plan.shard_group),
                  "groups of whole expert-parallel groups");
  }
  if (plan.ep > 1 && plan.dispatcher != Dispatcher::alltoall) {
    return refuse(fmt::format("dispatcher {}", name_of(plan.dispatcher)), "alltoall");
  }
  if (plan.overlap_ep || plan.overlap_shared) {
    return refuse("experts' exchange that overlaps other work", "a plan without --overlap ep");
  }
  return Done{};
}

/// Low-rank adapters on the matrices of dense blocks, whose frozen weights stay as they are.
Status check_adapters(const PlanFile& file) {
  const std::string where = "the plan";
  if (file.job.quantized_weights) {
    return input_error(where,
                       "weights in " + file.job.quantized_weights->text() +
                           " (--quantized-weights) under adapters (--lora)",
                       "a plan without --quantized-weights",
                       "this runtime keeps frozen weights in the format of its recipe");
  }
  if (!file.job.adapters) return Done{};
  const auto refuse = [&](const char* model) {
    return input_error(where, fmt::format("adapters (--lora) in a model with {}", model),
                       "a dense GPT-2-like or Llama-like model");
  };
  if (file.model.moe.experts > 0) return refuse("experts");
  if (file.model.latent()) return refuse("latent attention (MLA)");
  if (file.job.adapters->targets.empty()) {
    return input_error(where, "adapters (--lora) on no matrix", "a target, as in 16:linear_qkv");
  }
  if (file.plan.schedule == ScheduleKind::zero_bubble_h1) {
    return input_error(where, "schedule zb-h1 with adapters (--lora)", "gpipe, 1f1b or interleaved",
                       "frozen weights have no gradients to put off");
  }
  return Done{};
}

/// Widths that attention has kernels for (runtime/cuda/kernels/kernels.hpp, attention_takes).
Status check_heads_on_gpus(const ModelSpec& model) {
  const char* const hint = "--backend cpu executes any";
  if (model.latent()) {
    const int values = model.mla.v_head_dim;
    if (model.head_dim == 192 && values == 128) return Done{};
    return input_error("the plan",
                       fmt::format("latent attention with heads of {} for queries and keys and of "
                                   "{} for values (the CUDA backend supports 192 and 128)",
                                   model.head_dim, values),
                       "qk_nope_head_dim + qk_rope_head_dim 192, v_head_dim 128", hint);
  }
  if (model.head_dim == 64 || model.head_dim == 128) return Done{};
  return input_error(
      "the plan", fmt::format("head_dim {} (the CUDA backend supports 64 and 128)", model.head_dim),
      "a model with head_dim 64 or 128", hint);
}

/// Each of cp ranks has an equal part of a tensor-parallel rank's heads, or by a ring two equal
/// parts of the sequence.
Status check_context(const PlanFile& file) {
  const ParallelPlan& plan = file.plan;
  if (plan.cp == 1) return Done{};
  const bool ring = plan.cp_comm == CpComm::ring;
  if (!ring && plan.cp_comm != CpComm::all_to_all) {
    return input_error("the plan", fmt::format("cp {} by {}", plan.cp, name_of(plan.cp_comm)),
                       "cp communication p2p or a2a", "plan predict FILE --cp-comm p2p -o NEW");
  }
  const int slices = ring ? 2 * plan.cp : plan.cp;
  if (file.job.sequence % slices != 0) {
    return input_error("the plan",
                       fmt::format("a sequence of {} over {}cp {}", file.job.sequence,
                                   ring ? "2 x " : "", plan.cp),
                       fmt::format("a {}cp that divides the sequence", ring ? "2 x " : ""));
  }
  if (ring) return Done{};
  const int parts = plan.tp * plan.cp;
  const auto refuse = [&](std::string_view what, int count) {
    return input_error("the plan",
                       fmt::format("{} {} over tp {} x cp {}", count, what, plan.tp, plan.cp),
                       fmt::format("a tp x cp that divides the {}", what));
  };
  if (file.model.heads % parts != 0) return refuse("heads", file.model.heads);
  if (file.model.kv_heads % parts != 0) return refuse("key-value heads", file.model.kv_heads);
  return Done{};
}

}  // namespace

Status check_executable(const PlanFile& file, std::string_view backend) {
  const ParallelPlan& plan = file.plan;
  const std::string where = "the plan";
  if (const auto why = not_executed(file.model, file.job.sequence)) {
    return input_error(where, why->found, why->expected, hint_of(file.model));
  }
  using P = ParallelPlan;
  for (const PlanField& field : plan_fields()) {
    const bool of_experts = field.is(&P::ep) || field.is(&P::etp);
    const bool executed = field.is(&P::tp) || field.is(&P::pp) || field.is(&P::dp) ||
                          field.is(&P::cp) || (of_experts && file.model.moe.experts > 0);
    if (field.kind != PlanFieldKind::degree || executed || same_value(field, plan, P{})) continue;
    return input_error(
        where, fmt::format("{} {}", field.label, value_text(field, plan)),
        fmt::format("{} 1", field.label),
        "this runtime executes tp, cp, ep of models with experts, pp, vpp, dp and ZeRO");
  }
  if (Status context = check_context(file); !context) return context;
  if (runs_both_ways(plan.schedule)) {
    return input_error(where,
                       fmt::format("schedule {}, whose first rank holds the embedding and the "
                                   "head",
                                   name_of(plan.schedule)),
                       "gpipe, 1f1b, interleaved or zb-h1",
                       "this runtime places the chunks of a rank pp stages apart");
  }
  if (plan.offload_optimizer > 0) {
    return input_error(where, "an offloaded optimizer", "--offload none",
                       "this runtime keeps optimizer states where the weights are");
  }
  if (!plan.recompute_modules.empty()) {
    return input_error(where, "recomputed modules " + text_of(plan.recompute_modules),
                       "recompute none, selective, full or mixed",
                       "this runtime recomputes the attention core or whole layers");
  }
  if (!plan.offload_modules.empty()) {
    return input_error(where, "offloaded activations " + text_of(plan.offload_modules),
                       "a plan without --offload-modules",
                       "this runtime keeps activations on the device");
  }
  if (Status adapters = check_adapters(file); !adapters) return adapters;
  if (file.job.documents) {
    return input_error(where, "documents packed into sequences",
                       "a plan without --document-lengths",
                       "this runtime's attention runs over whole sequences");
  }
  if (!file.job.flash_attention) {
    return input_error(where, "attention that keeps its sequence x sequence matrix",
                       "flash attention, which is what this runtime computes",
                       "plan predict FILE --flash-attention -o NEW");
  }
  const PrecisionRecipe& recipe = file.job.precision;
  const bool wide =
      (recipe.compute == Dtype::fp32 || recipe.compute == Dtype::fp64) && recipe.master == 0;
  const bool mixed = recipe.compute == Dtype::bf16 && recipe.weight == 2 && recipe.gradient == 0 &&
                     recipe.main_gradient == 4 && recipe.master == 4;
  if (backend == "cuda" && !mixed) {
    return input_error(where, "precision " + recipe.name + " on GPUs", "bf16:adam-fp32-master",
                       "plan predict FILE --precision bf16 -o NEW");
  }
  if (!wide && !mixed) {
    return input_error(where, "precision " + recipe.name, "fp32, fp64 or bf16:adam-fp32-master",
                       "plan predict FILE --precision fp32 -o NEW");
  }
  if (backend == "cuda") {
    if (const Status heads = check_heads_on_gpus(file.model); !heads) return heads;
  }
  if (file.model.moe.experts > 0) {
    if (const Status experts = check_experts(file.model.moe, plan); !experts) return experts;
  }
  const int heads = file.model.heads;
  if (heads % plan.tp != 0) {
    return input_error(where, fmt::format("{} heads over tp {}", heads, plan.tp),
                       "a tp that divides the heads");
  }
  return Done{};
}

}  // namespace echelon
