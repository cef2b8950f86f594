// torchtitan, and other training on PyTorch's FSDP2.
#include <array>
#include <string>
#include <string_view>

#include "core/framework/model_features.hpp"
#include "core/framework/tables.hpp"
#include "core/plan/stage_placement.hpp"

namespace echelon {

namespace {

constexpr std::array kTorchtitanDefaults = {
    FrameworkDefaults{.software = "torchtitan",
                      .why = "the same software",
                      .recompute = Recompute::selective,
                      .zero = 3},
    // A compiled model has a compiled loss since pull request 1033: 16-bit logits and their
    // gradient.
    FrameworkDefaults{.software = "torchtitan",
                      .since = "2025-04",
                      .why = "the same software",
                      .recompute = Recompute::selective,
                      .zero = 3,
                      .compiled_logits_bytes = 4},
    // ChunkedCELoss, pull request 2937 of 2026-04: an eighth of the logits at a time.
    FrameworkDefaults{.software = "torchtitan",
                      .detail = "quantization/nvfp4.md",
                      .why = "the same software",
                      .recompute = Recompute::selective,
                      .zero = 3,
                      .logits_bytes = 2},
    FrameworkDefaults{.software = "torchtune",
                      .same_code = false,
                      .why = "PyTorch FSDP2 with the same building blocks",
                      .recompute = Recompute::full,
                      .zero = 3,
                      .not_priced_on_one_gpu =
                          "torchtune's single-GPU optimizers (8-bit, paged, in the backward pass) "
                          "are not priced"},
    FrameworkDefaults{.software = "olmo-core",
                      .same_code = false,
                      .why = "PyTorch FSDP2 with torch.compile",
                      .zero = 3},
    FrameworkDefaults{.software = "nemo-automodel",
                      .same_code = false,
                      .why = "PyTorch FSDP2 around HuggingFace models",
                      .zero = 3},
    FrameworkDefaults{.software = "prime-rl",
                      .same_code = false,
                      .why = "PyTorch FSDP2 with torch.compile around its own models",
                      .zero = 3},
    FrameworkDefaults{
        .software = "ddp", .same_code = false, .why = "plain PyTorch with torch.compile"},
    FrameworkDefaults{.software = "hf-trainer",
                      .same_code = false,
                      .why = "PyTorch FSDP2 around HuggingFace models",
                      .zero = 3},
    // bf16 logits and their fp32 copy, in which Liger's cross entropy writes the gradient: halo
    // 16bb5e52, src/kernels/liger/cross_entropy.py; transformers, loss/loss_utils.py,
    // logits.float().
    FrameworkDefaults{.software = "halo",
                      .same_code = false,
                      .why = "PyTorch FSDP2 with kernels of its own for experts",
                      .zero = 3,
                      .logits_bytes = 6},
    FrameworkDefaults{
        .software = "litgpt", .same_code = false, .why = "PyTorch FSDP2 around LitGPT", .zero = 3},
    // KempnerForge 5666d0d1: bf16 logits, their log-softmax and the gradients of both
    // (kempnerforge/training/loss.py, F.cross_entropy), which are not split (distributed/
    // tensor_parallel.py, output_layouts=Replicate()); set_requires_gradient_sync
    // (training/grad.py, maybe_no_sync).
    FrameworkDefaults{.software = "kempnerforge",
                      .same_code = false,
                      .why = "PyTorch FSDP2 around its own models",
                      .zero = 3,
                      .logits_bytes = 8,
                      .whole_logits = true,
                      .accumulates_whole = true},
    FrameworkDefaults{
        .software = "",
        .evident = Evident::splits_data,
        .same_code = false,
        .why = "an unknown software; what only splits data is most like PyTorch FSDP2",
        .zero = 3},
};

constexpr std::array<std::string_view, 1> kTorchtitanNames = {"fsdp2"};

constexpr std::array kTorchtitanRules = {
    FrameworkRule{RulePart::degrees, replicates_kv_heads,
                  "copies of a key/value head on several tensor-parallel ranks",
                  "torchtitan v0.2.2, torchtitan/models/llama3/model/model.py:257"},
    FrameworkRule{
        RulePart::degrees,
        [](const ModelSpec& m, const ParallelPlan& p) { return m.tied_embeddings && p.pp > 1; },
        "pipeline parallelism of a model with tied embeddings",
        "torchtitan v0.2.2, torchtitan/models/qwen3/model/model.py:500"},
    FrameworkRule{RulePart::degrees,
                  [](const ModelSpec& m, const ParallelPlan& p) {
                    return m.moe.experts > 0 && p.ep > 1 && p.etp != 1 && p.etp != p.tp;
                  },
                  "etp other than 1 and tp",
                  "torchtitan v0.2.2, torchtitan/distributed/parallel_dims.py:59"},
    FrameworkRule{RulePart::degrees,
                  [](const ModelSpec& m, const ParallelPlan& p) {
                    return m.moe.experts > 0 && p.ep == 1 && p.etp != p.tp;
                  },
                  "ep 1 with etp other than tp",
                  "torchtitan v0.2.2, torchtitan/models/llama4/infra/parallelize.py:559"},
    FrameworkRule{RulePart::degrees,
                  [](const ModelSpec&, const ParallelPlan& p) {
                    return p.ep > 1 && p.dispatcher != Dispatcher::alltoall && p.etp > 1;
                  },
                  "DeepEP and HybridEP with experts split by tensor parallelism (etp > 1)",
                  "torchtitan v0.2.2, torchtitan/models/deepseek_v3/infra/parallelize.py:107; "
                  "v0.3.0 has no etp"},
    FrameworkRule{RulePart::degrees,
                  [](const ModelSpec&, const ParallelPlan& p) {
                    return p.cuda_graphs != CudaGraphs::none && p.pp > 1;
                  },
                  "CUDA graphs with pipeline stages",
                  "torchtitan v0.3.0, torchtitan/trainer.py:183, _validate_cuda_graphs"},
    // HybridEP without waiting takes a capacity, over which tokens are dropped.
    FrameworkRule{
        RulePart::degrees,
        [](const ModelSpec& m, const ParallelPlan& p) {
          return p.cuda_graphs != CudaGraphs::none && m.moe.experts > 0 && p.ep > 1;
        },
        "CUDA graphs with experts spread over ranks, but by MinimalAsyncEP and by HybridEP "
        "with a non_blocking_capacity_factor, which have no price",
        "torchtitan v0.3.0, torchtitan/trainer.py:193, _validate_cuda_graphs"},
    // It splits its own models and those of transformers that are built as Llama is; FSDP2 alone
    // takes any module.
    FrameworkRule{RulePart::degrees, where_layers_split<has_state_spaces>,
                  "tensor, pipeline, context or expert parallelism of layers with state spaces",
                  "torchtitan v0.2.2 and b5bcd76c, torchtitan/models/__init__.py: in none of its "
                  "models"},
    FrameworkRule{RulePart::degrees, where_layers_split<has_latent_experts>,
                  "tensor, pipeline, context or expert parallelism of experts on a latent",
                  "torchtitan v0.2.2, torchtitan/models/moe/moe.py:430, and b5bcd76c, "
                  "torchtitan/models/common/moe.py"},
    FrameworkRule{RulePart::degrees, where_layers_split<has_other_positions>,
                  "tensor, pipeline, context or expert parallelism of models without rotary "
                  "positions",
                  "torchtitan v0.2.2, torchtitan/models/__init__.py, and "
                  "torchtitan/experiments/transformers_modeling_backend/model/model.py:393"},
    FrameworkRule{RulePart::sharding,
                  [](const ModelSpec&, const ParallelPlan& p) {
                    const bool other_axis = p.tp > 1 || p.pp > 1 || p.ep > 1;
                    return p.zero == 0 && (p.cp > 1 || (p.dp > 1 && other_axis));
                  },
                  "ZeRO-0 (DDP) together with tensor, pipeline, context or expert parallelism",
                  "torchtitan v0.2.2, torchtitan/models/llama3/infra/parallelize.py:151"},
    FrameworkRule{RulePart::sharding,
                  [](const ModelSpec&, const ParallelPlan& p) {
                    return p.zero >= 2 && p.shard_group % p.cp != 0;
                  },
                  "a ZeRO group that is no multiple of cp: data_parallel_shard_degree x "
                  "context_parallel_degree",
                  "torchtitan v0.2.2, torchtitan/distributed/parallel_dims.py, dp_shard_cp"},
    // Products would be in fp32: FSDP casts weights, and autocast is off beside tp and pp.
    FrameworkRule{
        RulePart::sharding,
        [](const ModelSpec&, const ParallelPlan& p) {
          return p.dp == 1 && p.cp == 1 && (p.tp > 1 || p.pp > 1);
        },
        "mixed precision with tensor or pipeline parallelism and without FSDP (dp x cp 1)",
        "torchtitan v0.2.2, torchtitan/distributed/utils.py:243, maybe_enable_amp",
        [](const PrecisionRecipe& r) { return r.compute != Dtype::fp32; }},
};

/// Chunks other than those of its default: layers, embedding and head dealt one by one.
bool needs_module_names(const ModelSpec& model, const ParallelPlan& plan) {
  const int chunks = plan.pp * plan.vpp;
  const int items = model.layers + 2;
  for (int chunk = 0; chunk < plan.vpp; ++chunk) {
    for (int rank = 0; rank < plan.pp; ++rank) {
      const int place = placement_of(plan).stage(rank, chunk);
      const int ends = (place == 0 ? 1 : 0) + (place == chunks - 1 ? 1 : 0);
      const int dealt = items / chunks + (place < items % chunks ? 1 : 0) - ends;
      if (layers_in_chunk(plan, rank, chunk) != dealt) return true;
    }
  }
  return false;
}

/// Parts that none of its models has, in words; "" for none.
std::string parts_of_no_model(const ModelSpec& m) {
  if (has_state_spaces(m)) return "state spaces";
  if (has_latent_experts(m)) return "experts on a latent";
  return has_other_positions(m) ? "other positions than rotary ones" : "";
}

/// What its release with TOML files lacks of the plan and later ones have.
std::string newer_release(const ModelSpec& m, const ParallelPlan& p) {
  std::string what;
  const auto add = [&](bool lacking, const char* text) {
    if (lacking) what += (what.empty() ? "" : ", ") + std::string(text);
  };
  add(where_layers_split<has_delta_nets>(m, p), "gated delta nets");
  add(where_layers_split<has_gated_shared_experts>(m, p), "shared experts with a gate");
  add(p.cp > 1 && has_windows(m), "context parallelism of windows");
  add(p.cp > 1 && m.latent(), "context parallelism of DeepSeek-V3");
  add(p.pp > 1 && (has_sinks(m) || m.qk_norm), "a pipeline of GPT-OSS or Qwen3");
  add(p.cuda_graphs != CudaGraphs::none, "CUDA graphs");
  return what.empty() ? "" : "torchtitan v0.3.0 or newer, for " + what;
}

/// A dense block that none of its own models has, and its backend for HuggingFace's has.
bool is_another_block(const ModelSpec& m) {
  const bool biased = m.qkv_bias || m.attention_output_bias || m.mlp_bias || m.head_bias;
  const bool llama_like = m.normalization == Normalization::rms_norm && m.gated_mlp &&
                          m.activation == Activation::silu && !biased && !m.parallel_block &&
                          !m.post_norms && !m.qk_norm_all_heads && !has_windows(m);
  const bool plain = m.moe.experts == 0 && !m.latent() && !has_delta_nets(m);
  return plain && !llama_like && parts_of_no_model(m).empty();
}

constexpr std::array kTorchtitanRemarks = {
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec& m, const ParallelPlan&) -> std::string {
                 const std::string parts = parts_of_no_model(m);
                 if (parts.empty()) return {};
                 return "a model of one's own or of HuggingFace's transformers, for " + parts +
                        ", which none of torchtitan's has";
               },
               "torchtitan v0.2.2 and b5bcd76c, torchtitan/models/__init__.py, README.md"},
    RemarkRule{RemarkKind::needs, newer_release,
               "torchtitan v0.2.2, torchtitan/models/gpt_oss/model/args.py:89, "
               "torchtitan/models/deepseek_v3/model/args.py:104, "
               "torchtitan/models/llama4/model/args.py:79, torchtitan/models/moe/moe.py:445, "
               "torchtitan/train.py:219; v0.3.0, torchtitan/models/qwen3_5, "
               "torchtitan/distributed/cudagraph.py"},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec& m, const ParallelPlan& p) -> std::string {
                 if (!where_layers_split<is_another_block>(m, p)) return {};
                 return "model.name = \"transformers_modeling_backend\", for HuggingFace's model";
               },
               "torchtitan v0.2.2, torchtitan/experiments/transformers_modeling_backend/README.md"},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec& m, const ParallelPlan& p) -> std::string {
                 if (p.pp == 1 || !needs_module_names(m, p)) return {};
                 return "parallelism.module_fqns_per_model_part, for these layers per chunk";
               },
               "torchtitan v0.2.2, torchtitan/distributed/pipeline_parallel.py:118"},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec&, const ParallelPlan& p) -> std::string {
                 const bool by_default = (p.zero == 3) == (p.pp == 1);
                 if (p.zero < 2 || by_default) return {};
                 return p.zero == 3 ? "parallelism.fsdp_reshard_after_forward = \"always\""
                                    : "parallelism.fsdp_reshard_after_forward = \"never\"";
               },
               "torchtitan v0.2.2, torchtitan/models/llama3/infra/parallelize.py:327"},
    RemarkRule{
        RemarkKind::needs,
        [](const ModelSpec&, const ParallelPlan& p) -> std::string {
          const bool both = p.schedule == ScheduleKind::dualpipe_v && p.ep > 1;
          if (!both || p.recompute == Recompute::none) return {};
          return "the setting parallelism.pipeline_parallel_expert_parallel_overlap = false, "
                 "for recomputation";
        },
        "torchtitan v0.2.2, torchtitan/distributed/dual_pipe_v.py:45"},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec&, const ParallelPlan& p) -> std::string {
                 if (p.ep == 1 || p.dispatcher == Dispatcher::alltoall) return {};
                 return "moe_comm_backend=\"" + std::string(name_of(p.dispatcher)) +
                        "\" of model_registry, and the library DeepEP" +
                        (p.dispatcher == Dispatcher::hybridep ? ", of its branch hybrid-ep" : "");
               },
               "torchtitan v0.3.0, torchtitan/models/common/config_utils.py:361"},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec& m, const ParallelPlan& p) -> std::string {
                 if (m.moe.experts == 0 || p.ep == 1 || p.etp == 1) return {};
                 return "torchtitan v0.2.2 or older, for experts split by tensor parallelism "
                        "(etp > 1) together with ep";
               },
               "torchtitan v0.2.2, torchtitan/config/job_config.py, "
               "expert_tensor_parallel_degree; v0.3.0, torchtitan/config/configs.py, which lacks "
               "it"},
};

}  // namespace

Framework torchtitan() {
  Framework f;
  f.name = "torchtitan";
  // v0.3.0, torchtitan/config/configs.py: FSDP keeps parameters, gradients and states on the host
  f.parameter_offload = "training.enable_cpu_offload";
  f.source =
      "torchtitan: FSDP2 (ZeRO-3, or ZeRO-2 when weights are not resharded after "
      "forward) with fp32 shards; combines with pipeline stages; no ZeRO-1";
  f.default_precision = "bf16:fsdp-fp32-shards";
  // torchtitan/config: mixed_precision_param is "bfloat16" or "float32"; no loss is scaled.
  f.trains_fp16 = false;
  // torchtitan/models/attention.py: attn_mask_type block_causal, get_document_mask_mod
  f.packed_documents = true;
  f.zero_allowed[1] = false;
  f.zero23_with_pipeline = true;
  // torch/distributed/pipelining/stage.py, backward_maybe_with_nosync: neither reduces nor reshards
  // before the last backward
  f.reduces_once_in_pipeline = true;
  // torch 2.15, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py: split_with_sizes_copy in
  // foreach_all_gather_copy_out, chunk_cat_mixed_dtype in foreach_reduce, both in the stream of the
  // compute
  f.unit_copies = UnitCopies::each_parameter;
  // pipeline_parallel_schedule "DualPipeV": torchtitan b5bcd76c, distributed/pipeline_parallel.py
  // (overlap_callback of ScheduleDualPipeV), PyTorch torch/distributed/pipelining/schedules.py.
  f.dualpipe_v = true;
  f.cp_ring = true;
  // With the memory-efficient kernel, v0.2.2, torchtitan/models/attention.py, sdpa_backends; ring
  // attention takes it, too (torch/distributed/tensor/experimental/_attention.py). b5bcd76c has
  // FlexAttention in its place, of fp32 as well (models/common/config_utils.py:83).
  f.flash_kernels = kTorchAttention;
  f.expert_parallel = true;
  // v0.3.0, torchtitan/models/common/config_utils.py:361, make_token_dispatcher_config
  f.dispatchers[static_cast<std::size_t>(Dispatcher::deepep)] = true;
  f.dispatchers[static_cast<std::size_t>(Dispatcher::hybridep)] = true;
  f.exchanges_local_batch = true;
  f.sequence_parallel_always = true;
  // v0.2.2, torchtitan/models/llama3/infra/parallelize.py, apply_tp: layouts Shard(1); torch 2.15,
  // torch/distributed/_functional_collectives.py, all_gather_single (_maybe_view_chunk_cat) and
  // reduce_scatter_single (torch.cat); counted by tests/external/count_dtensor.py
  f.splits_second_dimension = true;
  // docs/float8.md, "for TP (by default for Float8Linear)"; torchao v0.8.0,
  // torchao/float8/float8_tensor_parallel.py: the input, and the output's gradient, are cast and
  // then gathered
  f.gathers_fp8 = true;
  f.separate_projections = true;
  // A linear module's node of autograd makes both gradients before the sum of the input's begins,
  // which the backward of the norm waits for; torch.compile does not reorder them.
  f.overlaps_tp_backward = false;
  // v0.3.0, torchtitan/distributed/cudagraph.py: the forward and the backward of a microbatch, on
  // unless training.disable_cuda_graphs. They keep no memory besides the activations': torch's
  // graph empties the cache of its first, eager run before it fills a pool of its own
  // (torch 2.15, torch/cuda/graphs.py, graph.__enter__).
  f.graphs_of_step = true;
  f.trains_adapters = "FSDP2 with PEFT or NeMo AutoModel, not torchtitan itself";
  f.adapts_each_module = true;
  f.wraps_transformers = true;
  // accelerate v1.15, src/accelerate/utils/fsdp_utils.py, fsdp2_prepare_model: Params4bit in a
  // floating format
  f.quantizes_weights = "bitsandbytes";
  // Eager PyTorch, bytes per token of a Llama layer in units of hidden, forward: two RMSNorms of
  // six kernels 72, RoPE in fp32 25, silu and product 35, residuals 12; fused 8, 5, 21 and 12.
  f.eager_passes = 3;
  f.saves_gate_output = true;  // F.silu(w1(x)) * w3(x), unless compiled
  // v0.2.2, torchtitan/distributed/activation_checkpoint.py:173, mode "full": every block. Every
  // n-th one ("selective" with a number, line 40 there) is left out: later ones do not have it
  // (b5bcd76c, FullAC, SelectiveAC, MemoryBudgetAC), and neither have FSDP2's other users
  // (Accelerate, fsdp_activation_checkpointing).
  f.counts_recomputed = false;
  // activation_checkpoint "selective", option "op": attention and every second mm are kept
  f.selective_per_operator = true;
  // torch's cross entropy: bf16 logits and their gradient, fp32 copy, log-softmax, gradient
  f.logits_bytes = 16;
  f.compiled_logits_bytes = 12;  // the fp32 copy and its log-softmax are one tensor
  // parallelism.data_parallel_replicate_degree and module_fqns_per_model_part
  f.hybrid_shard[2] = f.hybrid_shard[3] = true;
  f.any_layout = true;
  f.defaults = kTorchtitanDefaults;
  // torchtitan v0.2.2, torchtitan/models/attention.py: cuDNN is the first of the backends of
  // scaled_dot_product_attention (set_priority).
  f.attention = AttentionKernels::newest;
  f.also_called = kTorchtitanNames;  // FSDP2 itself, which it only configures
  f.rules = kTorchtitanRules;
  f.remark_rules = kTorchtitanRemarks;
  return f;
}

}  // namespace echelon
