// Megatron-Core and what trains with it.
// Over 400 lines because one table states its facts, rules and remarks, each with its source.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "core/framework/stage_layers.hpp"
#include "core/framework/tables.hpp"

namespace echelon {

namespace {

constexpr std::array kMegatronCoreDefaults = {
    FrameworkDefaults{.software = "megatron-core",
                      .family = "megatron",
                      .first_year = 2023,
                      .last_year = 2099,
                      .why = "Megatron-LM since Megatron Core",
                      .zero = 1,
                      .split = StageSplit::ends_hold_fewer,
                      .memory_of_first_rank = true},
    FrameworkDefaults{.software = "megatron-core",
                      .detail = "Megatron-Bridge",
                      .why = "the same software",
                      .zero = 1,
                      .tuned_recipes = true,
                      .split = StageSplit::ends_hold_fewer,
                      .memory_of_first_rank = true},
    FrameworkDefaults{.software = "nemo",
                      .detail = "Megatron-LM 2023",
                      .why = "NeMo trains with Megatron Core",
                      .zero = 1,
                      .split = StageSplit::ends_hold_fewer,
                      .memory_of_first_rank = true},
    FrameworkDefaults{.software = "nemo",
                      .why = "NeMo trains with Megatron Core",
                      .zero = 1,
                      .tuned_recipes = true,
                      .split = StageSplit::ends_hold_fewer,
                      .memory_of_first_rank = true},
    FrameworkDefaults{.software = "nemo-mlperf",
                      .why = "NeMo as tuned for MLPerf trains with Megatron Core",
                      .zero = 1,
                      .tuned_recipes = true,
                      .split = StageSplit::ends_hold_fewer,
                      .memory_of_first_rank = true},
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

constexpr bool by_muon(const PrecisionRecipe& precision) { return precision.muon; }

/// Whether graphs of layers hold the MLP of dense layers (graphed_parts).
bool graphs_dense_mlp(const ModelSpec& model, const ParallelPlan& plan) {
  const std::vector<std::string_view> parts = graphed_parts(model, plan);
  return std::ranges::find(parts, "mlp") != parts.end();
}

/// Whether selective recomputation includes the module; without names it is that of core_attn.
constexpr bool recomputes(const ParallelPlan& p, RecomputeModule module) {
  if (p.recompute != Recompute::selective) return false;
  return p.recompute_modules.contains(module) ||
         (p.recompute_modules.empty() && module == RecomputeModule::core_attn);
}

constexpr std::array kMegatronCoreRules = {
    FrameworkRule{
        RulePart::degrees,
        [](const ModelSpec& m, const ParallelPlan& p) { return m.moe.expert_bias && p.etp > 1; },
        "experts with biases split by tensor parallelism (etp > 1)",
        "Megatron-LM core_v0.16.1, megatron/core/transformer/transformer_config.py:1591"},
    FrameworkRule{RulePart::degrees,
                  [](const ModelSpec&, const ParallelPlan& p) {
                    return p.overlap_ep && p.dispatcher == Dispatcher::allgather;
                  },
                  "overlap of expert communication with the allgather dispatcher",
                  "Megatron-LM d98e8a64, megatron/core/transformer/transformer_config.py, "
                  "overlap_moe_expert_parallel_comm"},
    FrameworkRule{
        RulePart::degrees,
        [](const ModelSpec& m, const ParallelPlan& p) { return p.overlap_ep && m.ssm.layers > 0; },
        "overlap of expert communication in a model with state spaces",
        "Megatron-LM d98e8a64, megatron/core/pipeline_parallel/combined_1f1b.py:381: "
        "HybridModel has no build_schedule_plan"},
    FrameworkRule{RulePart::degrees,
                  [](const ModelSpec& m, const ParallelPlan& p) {
                    return m.sparse() && p.tp > 1 && !p.sequence_parallel;
                  },
                  "sparse attention (DSA) with tp > 1 without sequence parallelism",
                  "Megatron-LM d98e8a64, megatron/core/transformer/"
                  "experimental_attention_variant/absorbed_mla.py:172"},
    FrameworkRule{RulePart::degrees,
                  [](const ModelSpec& m, const ParallelPlan& p) {
                    return m.sparse() && p.cp > 1 && p.cp_comm != CpComm::all_gather;
                  },
                  "context parallelism of sparse attention (DSA) by p2p or a2a: all_gather alone",
                  "Megatron-LM d98e8a64, megatron/core/transformer/transformer_config.py:3162"},
    FrameworkRule{RulePart::degrees,
                  [](const ModelSpec& m, const ParallelPlan& p) {
                    return m.sparse() && p.cuda_graphs != CudaGraphs::none;
                  },
                  "CUDA graphs around sparse attention (DSA), whose backward waits for the number "
                  "of rows that have keys",
                  "Megatron-LM d98e8a64, megatron/core/transformer/"
                  "experimental_attention_variant/dsa_cudnn_kernels.py:2063"},
    FrameworkRule{RulePart::recomputation,
                  [](const ModelSpec& m, const ParallelPlan& p) {
                    return m.sparse() && p.recompute_modules.contains(RecomputeModule::mla_up_proj);
                  },
                  "recomputation of mla_up_proj in fp8 or fp4 with sparse attention (DSA)",
                  "Megatron-LM d98e8a64, megatron/core/transformer/"
                  "experimental_attention_variant/absorbed_mla.py, qkv_up_checkpoint",
                  [](const PrecisionRecipe& r) { return r.scaling != Fp8Scaling::none; }},
    FrameworkRule{RulePart::degrees,
                  [](const ModelSpec& m, const ParallelPlan& p) {
                    return p.overlap_ep && m.prediction_modules > 1;
                  },
                  "overlap of expert communication with more than one prediction module",
                  "Megatron-LM d98e8a64, megatron/core/transformer/transformer_config.py:3042"},
    FrameworkRule{
        RulePart::degrees,
        [](const ModelSpec& m, const ParallelPlan& p) {
          return p.cp > 1 && p.cp_comm == CpComm::ring &&
                 (m.windowed_layers > 0 || m.attention_sinks);
        },
        "context parallelism by p2p with windowed attention or attention sinks: a2a (windows "
        "also all_gather, which is not priced)",
        "TransformerEngine d0067d0d, pytorch/attention/dot_product_attention/"
        "context_parallel.py:5057"},
    FrameworkRule{RulePart::degrees,
                  [](const ModelSpec&, const ParallelPlan& p) {
                    return p.overlap_tp && p.tp > 1 && !p.sequence_parallel;
                  },
                  "overlap of tensor-parallel communication without sequence parallelism",
                  "Megatron-LM d98e8a64, megatron/training/arguments.py:1442"},
    FrameworkRule{RulePart::degrees,
                  [](const ModelSpec& m, const ParallelPlan& p) {
                    return p.overlap_shared && m.moe.latent_hidden > 0;
                  },
                  "shared experts beside the exchange of experts on a latent",
                  "Megatron-LM d98e8a64, megatron/core/transformer/moe/moe_layer.py:478"},
    FrameworkRule{RulePart::degrees,
                  [](const ModelSpec&, const ParallelPlan& p) {
                    return p.overlap_shared &&
                           (p.dispatcher != Dispatcher::alltoall || p.overlap_ep);
                  },
                  "shared experts beside the exchange with another dispatcher than alltoall, or "
                  "with overlap of ep",
                  "Megatron-LM core_v0.16.1, megatron/core/transformer/transformer_config.py, "
                  "moe_shared_expert_overlap"},
    FrameworkRule{RulePart::degrees,
                  [](const ModelSpec& m, const ParallelPlan& p) {
                    return p.cuda_graphs == CudaGraphs::full_iteration && m.moe.experts > 0 &&
                           (p.ep == 1 || p.dispatcher != Dispatcher::hybridep);
                  },
                  "CUDA graph of a whole step with experts whose token counts the host waits for: "
                  "only with ep > 1 and hybridep",
                  "Megatron-LM d98e8a64, docs/user-guide/features/cuda_graph.md; "
                  "megatron/core/transformer/moe/token_dispatcher.py"},
    FrameworkRule{RulePart::schedule,
                  [](const ModelSpec&, const ParallelPlan& p) {
                    return p.overlap_ep && p.pp > 1 && p.vpp == 1;
                  },
                  "overlap of expert communication on pipeline stages without interleaving",
                  "Megatron-LM d98e8a64, megatron/core/transformer/transformer_config.py, "
                  "overlap_moe_expert_parallel_comm"},
    FrameworkRule{RulePart::schedule,
                  [](const ModelSpec&, const ParallelPlan& p) {
                    return p.vpp > 1 && p.pp == 2 && !p.overlap_pp;
                  },
                  "interleaving on 2 stages without overlap of pipeline messages",
                  "Megatron-LM core_v0.16.1, megatron/training/arguments.py:579"},
    FrameworkRule{RulePart::sharding,
                  [](const ModelSpec&, const ParallelPlan& p) {
                    return p.zero >= 2 && p.overlap_ep && p.cuda_graphs == CudaGraphs::layers;
                  },
                  "CUDA graphs of layers under FSDP that overlaps expert communication",
                  "Megatron-LM d98e8a64, megatron/core/distributed/fsdp/mcore_fsdp_adapter.py:182"},
    FrameworkRule{RulePart::sharding,
                  [](const ModelSpec&, const ParallelPlan& p) { return p.offload_optimizer > 0; },
                  "optimizer offload with fp8 primary weights, but for those of delayed scaling",
                  "Megatron-LM core_v0.16.1, megatron/training/arguments.py:1195",
                  [](const PrecisionRecipe& r) {
                    return r.primary_weights && r.scaling != Fp8Scaling::delayed;
                  }},
    FrameworkRule{RulePart::sharding,
                  [](const ModelSpec&, const ParallelPlan& p) {
                    return p.zero >= 2 && p.offload_optimizer > 0;
                  },
                  "optimizer offload under Megatron-FSDP (ZeRO-2 and 3), whose parameters are "
                  "DTensors",
                  "Megatron-LM d98e8a64, megatron/core/optimizer/cpu_offloading/"
                  "hybrid_optimizer.py:274; issue 1986, open"},
    FrameworkRule{RulePart::sharding,
                  [](const ModelSpec&, const ParallelPlan& p) { return p.zero >= 2; },
                  "Muon under FSDP (ZeRO-2 and 3)",
                  "Megatron-LM d98e8a64, megatron/training/arguments.py:1740", by_muon},
    FrameworkRule{
        RulePart::sharding,
        [](const ModelSpec&, const ParallelPlan& p) { return p.zero == 1 && p.instances() > 1; },
        "Muon whose states are sharded over a part of the data-parallel ranks",
        "Megatron-LM d98e8a64, megatron/core/optimizer/__init__.py:841", by_muon},
    FrameworkRule{RulePart::sharding,
                  [](const ModelSpec&, const ParallelPlan& p) { return p.offload_optimizer > 0; },
                  "offload of Muon's states",
                  "Megatron-LM d98e8a64, megatron/core/optimizer/optimizer_config.py:436, "
                  "and megatron/training/arguments.py:1885",
                  by_muon},
    FrameworkRule{RulePart::recomputation,
                  [](const ModelSpec&, const ParallelPlan& p) {
                    return p.overlap_ep && p.recompute == Recompute::full;
                  },
                  "overlap of expert communication together with full recomputation",
                  "Megatron-LM d98e8a64, megatron/core/transformer/transformer_config.py:3021"},
    FrameworkRule{RulePart::recomputation,
                  [](const ModelSpec&, const ParallelPlan& p) {
                    return p.overlap_ep && p.recompute_modules.contains(RecomputeModule::moe);
                  },
                  "recomputation of moe while its exchange overlaps another microbatch",
                  "Megatron-LM d98e8a64, megatron/core/transformer/transformer_config.py:3030"},
    FrameworkRule{RulePart::recomputation,
                  [](const ModelSpec&, const ParallelPlan& p) {
                    return p.overlap_shared &&
                           p.recompute_modules.contains(RecomputeModule::shared_experts);
                  },
                  "recomputation of shared_experts while they run beside the exchange",
                  "Megatron-LM core_v0.16.1, megatron/core/transformer/transformer_config.py, "
                  "recompute_modules"},
    FrameworkRule{RulePart::recomputation,
                  [](const ModelSpec&, const ParallelPlan& p) {
                    return p.cuda_graphs == CudaGraphs::layers && p.recompute == Recompute::full;
                  },
                  "full recomputation with CUDA graphs of layers",
                  "Megatron-LM d98e8a64, megatron/core/transformer/transformer_config.py:2855"},
    FrameworkRule{RulePart::recomputation,
                  [](const ModelSpec&, const ParallelPlan& p) {
                    return p.cuda_graphs == CudaGraphs::layers &&
                           p.recompute_modules.contains(RecomputeModule::moe);
                  },
                  "recomputation of moe around the CUDA graph of its router",
                  "Megatron-LM d98e8a64, megatron/core/transformer/transformer_config.py:2866"},
    // A graph replays the random numbers of its recording.
    FrameworkRule{RulePart::recomputation,
                  [](const ModelSpec& m, const ParallelPlan& p) {
                    return p.cuda_graphs != CudaGraphs::none && m.attention_dropout > 0 &&
                           recomputes(p, RecomputeModule::core_attn);
                  },
                  "recomputation of core_attn with attention dropout in a CUDA graph",
                  "Megatron-LM core_v0.16.1, megatron/core/transformer/transformer_config.py:1808"},
    FrameworkRule{RulePart::recomputation,
                  [](const ModelSpec& m, const ParallelPlan& p) {
                    const bool whole = p.cuda_graphs == CudaGraphs::full_iteration;
                    const bool mlp =
                        whole || (p.cuda_graphs == CudaGraphs::layers && graphs_dense_mlp(m, p));
                    return m.hidden_dropout > 0 && ((mlp && recomputes(p, RecomputeModule::mlp)) ||
                                                    (whole && recomputes(p, RecomputeModule::moe)));
                  },
                  "recomputation of mlp or moe with hidden dropout in a CUDA graph",
                  "Megatron-LM core_v0.16.1, megatron/core/transformer/transformer_config.py:1817"},
    FrameworkRule{RulePart::recomputation,
                  [](const ModelSpec&, const ParallelPlan& p) {
                    return p.recompute_modules.intersects(
                        {RecomputeModule::layernorm, RecomputeModule::moe_act});
                  },
                  "recomputation of layernorm or moe_act in fp8 with delayed scaling",
                  "Megatron-LM core_v0.16.1, megatron/core/transformer/transformer_config.py:1241",
                  [](const PrecisionRecipe& r) { return r.scaling == Fp8Scaling::delayed; }},
};

std::string graph_scope(const ModelSpec& m, const ParallelPlan& p) {
  std::string scope;
  for (const std::string_view part : graphed_parts(m, p)) {
    scope += scope.empty() ? "" : " ";
    scope += part;
  }
  return scope;
}

/// Its models with state spaces take their layers, one part each, from a pattern of letters with
/// bars between the chunks, and no other layout. Source: Megatron-LM d98e8a64,
/// megatron/training/arguments.py:735-855.
std::string pattern_setting(const ModelSpec& model, const ParallelPlan& plan) {
  if (!model.layer_pattern.empty()) {
    return fmt::format("--hybrid-layer-pattern \"{}\"", megatron_pattern(model, plan));
  }
  const int parts = model.mlp_only_layers > 0 ? 1 : 2;
  if (plan.pp == 1) {
    return fmt::format("--hybrid-layer-pattern of {} letters, in the order of the model's layers",
                       parts * model.layers);
  }
  std::string letters;
  for (const int layers : layers_of_chunks(plan)) {
    letters += fmt::format("{}{}", letters.empty() ? "" : ",", parts * layers);
  }
  return fmt::format("--hybrid-layer-pattern with a | between chunks of {} letters", letters);
}

/// How the plan's chunks are told to it; "" for chunks of equal layers of an ordinary transformer.
std::string layout_setting(const ModelSpec& model, const ParallelPlan& plan) {
  if (model.ssm.layers > 0 || model.mlp_only_layers > 0) return pattern_setting(model, plan);
  if (plan.pp == 1) return {};
  const std::vector<int> chunks = layers_of_chunks(plan);
  const int most = *std::ranges::max_element(chunks);
  const bool inner_equal =
      std::all_of(chunks.begin() + 1, chunks.end() - 1, [&](int layers) { return layers == most; });
  const int first = most - chunks.front();
  const int last = most - chunks.back();
  if (!inner_equal || first > 1 || last > 1) {
    return fmt::format("--pipeline-model-parallel-layout \"{}\"", megatron_layout(plan));
  }
  std::string flags = first == 1 ? "--account-for-embedding-in-pipeline-split" : "";
  if (first == 1 && last == 1) flags += " ";
  return last == 1 ? flags + "--account-for-loss-in-pipeline-split" : flags;
}

std::string dispatcher_setting(const ModelSpec&, const ParallelPlan& plan) {
  if (plan.ep == 1) return {};
  switch (plan.dispatcher) {
    case Dispatcher::allgather: return {};  // its default
    case Dispatcher::alltoall: return "--moe-token-dispatcher-type alltoall (default: allgather)";
    case Dispatcher::deepep:
    case Dispatcher::hybridep: break;
  }
  return fmt::format("--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend {}",
                     name_of(plan.dispatcher));
}

/// ZeRO-2 and ZeRO-3 are those of Megatron-FSDP.
bool uses_fsdp(const ParallelPlan& plan) { return plan.zero >= 2; }

using Remarked = std::string (*)(const ModelSpec&, const ParallelPlan&);

constexpr Remarked kFsdpSettings = [](const ModelSpec&, const ParallelPlan& p) -> std::string {
  if (!uses_fsdp(p)) return {};
  return fmt::format(
      "--use-megatron-fsdp --data-parallel-sharding-strategy {} --ckpt-format fsdp_dtensor, and "
      "CUDA_DEVICE_MAX_CONNECTIONS other than 1",
      p.zero == 3 ? "optim_grads_params" : "optim_grads");
};

/// Modules that the model has no such part of, or whose norms are fused into the GEMMs behind them.
std::string modules_without_effect(const ModelSpec& m, const ParallelPlan& p) {
  using enum RecomputeModule;
  RecomputeModules idle;
  const auto check = [&](RecomputeModule module, bool found) {
    if (p.recompute_modules.contains(module) && !found) idle.insert(module);
  };
  const bool experts = m.moe.experts > 0;
  check(layernorm, m.latent() || experts);
  check(shared_experts, m.moe.shared_ffn_hidden > 0);
  check(mlp, m.moe_layers() < m.layers);
  check(moe, experts);
  return idle.empty() ? "" : "no part of this model's layers is " + text_of(idle);
}

/// Norms that are fused into the GEMMs behind them are no modules of their own.
std::string offload_without_effect(const ModelSpec& m, const ParallelPlan& p) {
  OffloadModules idle;
  const auto check = [&](OffloadModule module, bool found) {
    if (p.offload_modules.contains(module) && !found) idle.insert(module);
  };
  check(OffloadModule::attn_norm, m.latent());
  for (const OffloadModule of_attention :
       {OffloadModule::qkv_linear, OffloadModule::core_attn, OffloadModule::attn_proj}) {
    check(of_attention, !m.sparse());  // absorbed_mla.py has no offload
  }
  check(OffloadModule::mlp_norm, m.moe.experts > 0);
  return idle.empty() ? ""
                      : "no kernel of its own, whose input could be offloaded, is " + text_of(idle);
}

/// "--fp8-format hybrid --fp8-recipe delayed"; "" for 16 bits. Blocks are scaled finely enough for
/// e4m3 throughout, TransformerEngine's default for them.
std::string_view format_options(Fp8Scaling scaling) {
  switch (scaling) {
    case Fp8Scaling::none: return "";
    case Fp8Scaling::delayed: return " --fp8-format hybrid --fp8-recipe delayed";
    case Fp8Scaling::tensorwise: return " --fp8-format hybrid --fp8-recipe tensorwise";
    case Fp8Scaling::blockwise: return " --fp8-format e4m3 --fp8-recipe blockwise";
    case Fp8Scaling::mxfp8: return " --fp8-format e4m3 --fp8-recipe mxfp8";
    case Fp8Scaling::nvfp4: return " --fp4-format e2m1 --fp4-recipe nvfp4";
  }
  return "";
}

/// Options of formats and states that are not those of bf16 or fp16 with fp32 gradients and Adam.
std::string precision_setting(const PrecisionRecipe& recipe, const ParallelPlan& plan) {
  std::string options(format_options(recipe.scaling));
  if (recipe.primary_weights) {
    options += recipe.scaling == Fp8Scaling::nvfp4 ? " --fp4-param-gather" : " --fp8-param-gather";
    const bool own_buffer = recipe.scaling == Fp8Scaling::mxfp8 && !uses_fsdp(plan);
    if (own_buffer) options += " --reuse-grad-buf-for-mxfp8-param-ag";
  }
  if (recipe.reduced_gradient == 2 && recipe.gradient == 0) options += " --grad-reduce-in-bf16";
  if (recipe.muon) {
    options += " --optimizer muon";
  } else if (recipe.moments == 4) {
    options += " --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16";
  }
  return options.empty() ? "" : options.substr(1) + ", for " + recipe.name;
}

std::string recompute_setting(const ModelSpec&, const ParallelPlan& p) {
  if (p.recompute_modules.empty()) return {};
  std::string modules = text_of(p.recompute_modules);
  std::ranges::replace(modules, ',', ' ');
  return "--recompute-granularity selective --recompute-modules " + modules;
}

std::string offload_setting(const ModelSpec&, const ParallelPlan& p) {
  if (p.offload_modules.empty()) return {};
  std::string modules = text_of(p.offload_modules);
  std::ranges::replace(modules, ',', ' ');
  const bool whole = p.cuda_graphs == CudaGraphs::full_iteration;
  return "--fine-grained-activation-offloading --offload-modules " + modules +
         (whole ? " --fine-grained-offloading-max-inflight-offloads 1" : "");
}

constexpr std::array kMegatronCoreRemarks = {
    RemarkRule{.kind = RemarkKind::needs,
               .source = "Megatron-LM d98e8a64, megatron/training/arguments.py; "
                         "megatron/core/optimizer/optimizer_config.py",
               .of_precision = precision_setting},
    RemarkRule{RemarkKind::needs, layout_setting,
               "Megatron-LM core_v0.16.1, megatron/core/transformer/transformer_config.py:1307"},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec&, const ParallelPlan& p) -> std::string {
                 if (p.offload_optimizer <= 0) return {};
                 return "--use-precision-aware-optimizer, for --optimizer-cpu-offload";
               },
               "Megatron-LM core_v0.16.1, megatron/training/arguments.py:1191"},
    RemarkRule{RemarkKind::needs, kFsdpSettings,
               "Megatron-LM core_v0.16.1, megatron/training/arguments.py:671-691",
               "unset CUDA_DEVICE_MAX_CONNECTIONS"},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec&, const ParallelPlan& p) -> std::string {
                 if (uses_fsdp(p) || p.overlap_ep || (p.tp == 1 && p.cp == 1)) return {};
                 return "CUDA_DEVICE_MAX_CONNECTIONS=1 on GPUs before Blackwell, for tp or cp > 1";
               },
               "Megatron-LM core_v0.16.1, megatron/training/arguments.py:951",
               "export CUDA_DEVICE_MAX_CONNECTIONS=1", false, true},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec&, const ParallelPlan& p) -> std::string {
                 if (p.vpp == 1 || p.overlap_pp) return {};
                 return "--no-overlap-p2p-communication";
               },
               "Megatron-LM core_v0.16.1, megatron/training/arguments.py:2232"},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec& m, const ParallelPlan& p) -> std::string {
                 if (m.moe.experts == 0 || p.etp == p.tp) return {};
                 return fmt::format("--expert-tensor-parallel-size {}, whose default is tp", p.etp);
               },
               "Megatron-LM core_v0.16.1, megatron/core/model_parallel_config.py:414"},
    RemarkRule{RemarkKind::needs, dispatcher_setting,
               "Megatron-LM core_v0.16.1, megatron/core/transformer/transformer_config.py:675"},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec&, const ParallelPlan& p) -> std::string {
                 if (!p.overlap_ep) return {};
                 return "--overlap-moe-expert-parallel-comm --delay-wgrad-compute, and "
                        "CUDA_DEVICE_MAX_CONNECTIONS other than 1";
               },
               "Megatron-LM d98e8a64, megatron/core/transformer/moe/README.md",
               "unset CUDA_DEVICE_MAX_CONNECTIONS"},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec& m, const ParallelPlan&) -> std::string {
                 if (!m.sparse()) return {};
                 const std::string options =
                     "--dsa-kernel-backend cudnn --dsa-indexer-use-sparse-loss "
                     "--dsa-indexer-loss-coeff X (above 0) --no-rope-fusion, and the libraries "
                     "FlashMLA";
                 return options + (m.dsa.hadamard ? ", cuDNN Frontend with its DSA kernels and "
                                                    "fast_hadamard_transform"
                                                  : " and cuDNN Frontend with its DSA kernels");
               },
               "Megatron-LM d98e8a64, megatron/core/transformer/transformer_config.py:315-358, "
               "3162"},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec&, const ParallelPlan& p) -> std::string {
                 return p.overlap_shared ? "--moe-shared-expert-overlap" : "";
               },
               "Megatron-LM core_v0.16.1, megatron/core/transformer/moe/shared_experts.py"},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec&, const ParallelPlan& p) -> std::string {
                 if (p.ep == 1) return {};
                 if (p.dispatcher == Dispatcher::deepep) return "the library DeepEP";
                 return p.dispatcher == Dispatcher::hybridep
                            ? "the library DeepEP, of its branch hybrid-ep"
                            : "";
               },
               "Megatron-LM d98e8a64, megatron/core/transformer/moe/README.md"},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec& m, const ParallelPlan& p) -> std::string {
                 switch (p.cuda_graphs) {
                   case CudaGraphs::none: return {};
                   case CudaGraphs::layers:
                     return "--cuda-graph-impl transformer_engine --cuda-graph-scope " +
                            graph_scope(m, p);
                   case CudaGraphs::full_iteration: break;
                 }
                 return "--cuda-graph-impl local --cuda-graph-scope full_iteration "
                        "--no-check-for-nan-in-loss-and-grad";
               },
               "Megatron-LM d98e8a64, docs/user-guide/features/cuda_graph.md; "
               "megatron/core/transformer/transformer_config.py:2824-2852, 3063"},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec&, const ParallelPlan& p) -> std::string {
                 if (p.cuda_graphs != CudaGraphs::full_iteration || p.ep == 1) return {};
                 return "Megatron-LM core 0.18 or newer, for a CUDA graph of a whole step with "
                        "ep > 1";
               },
               "Megatron-LM core_v0.17.1, megatron/training/arguments.py:1458, and core_v0.18.0, "
               "which no longer asks for an option of inference"},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec& m, const ParallelPlan& p) -> std::string {
                 if (p.cp == 1 || m.delta.layers == 0) return {};
                 return "Megatron-LM core 0.18 or newer, for cp with gated delta nets";
               },
               "Megatron-LM core_v0.18.0, megatron/core/ssm/gated_delta_net.py; core_v0.17.1 lacks "
               "it"},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec&, const ParallelPlan& p) -> std::string {
                 if (p.cuda_graphs != CudaGraphs::layers || !p.overlap_ep) return {};
                 return "Transformer Engine 2.10 or later, for --delay-wgrad-compute with CUDA "
                        "graphs of layers";
               },
               "Megatron-LM core_v0.16.1, megatron/core/transformer/transformer_config.py:1917"},
    RemarkRule{RemarkKind::warns,
               [](const ModelSpec&, const ParallelPlan& p) -> std::string {
                 if (!uses_fsdp(p) || (p.tp == 1 && p.cp == 1)) return {};
                 return "FSDP together with tp or cp > 1: on GPUs before Blackwell they want "
                        "different CUDA_DEVICE_MAX_CONNECTIONS";
               },
               "Megatron-LM core_v0.16.1, megatron/training/arguments.py:930", "", false, true},
    RemarkRule{RemarkKind::warns,
               [](const ModelSpec&, const ParallelPlan& p) -> std::string {
                 if (uses_fsdp(p) || !p.overlap_ep || (p.tp == 1 && p.cp == 1)) return {};
                 return "overlap of ep together with tp or cp > 1: on GPUs before Blackwell they "
                        "want different CUDA_DEVICE_MAX_CONNECTIONS";
               },
               "Megatron-LM core_v0.16.1, megatron/training/arguments.py:938", "", false, true},
    RemarkRule{
        RemarkKind::warns,
        [](const ModelSpec& m, const ParallelPlan& p) -> std::string {
          if (!uses_fsdp(p) || p.instances() == 1 || m.moe.experts == 0) return {};
          return "FSDP of experts over a part of the data-parallel ranks needs core_v0.17.0";
        },
        "Megatron-LM core_v0.16.1, megatron/core/distributed/fsdp/mcore_fsdp_adapter.py:245"},
    RemarkRule{RemarkKind::warns,
               [](const ModelSpec&, const ParallelPlan& p) -> std::string {
                 const bool named = p.recompute_modules.contains(RecomputeModule::core_attn);
                 if (p.recompute != Recompute::selective) return {};
                 if (!named && !p.recompute_modules.empty()) return {};
                 return "recomputation of core_attn is of no use to fused attention";
               },
               "Megatron-LM core_v0.16.1, megatron/core/transformer/transformer_config.py:1224", "",
               true},
    RemarkRule{RemarkKind::needs, recompute_setting,
               "Megatron-LM core_v0.16.1, megatron/core/transformer/transformer_config.py:1197"},
    RemarkRule{RemarkKind::needs, offload_setting,
               "Megatron-LM d98e8a64, "
               "docs/user-guide/features/fine_grained_activation_offloading.md"},
    RemarkRule{RemarkKind::warns, offload_without_effect,
               "Megatron-LM d98e8a64, megatron/core/transformer/transformer_layer.py"},
    RemarkRule{RemarkKind::warns, modules_without_effect,
               "Megatron-LM core_v0.16.1, megatron/core/transformer/transformer_layer.py"},
};

/// FlashAttention-2 and cuDNN's fused attention, of which TransformerEngine takes one: of 16 bits,
/// from Ampere on, of heads that are a multiple of 8. Of heads of over 192 only FlashAttention-2 on
/// 8.0, 9.0, 10.0 and 12.0, and cuDNN's on 9.0 and 10.x. FlashAttention-3 is Hopper's alone, and
/// FlashAttention-4 a package that is not installed with either.
/// Source: TransformerEngine d0067d0d, pytorch/attention/dot_product_attention/utils.py:569
/// (compute capability), 604 (data type), 926 (head dimension);
/// common/fused_attn/fused_attn.cpp:312.
constexpr FlashKernel of_wide_heads(double from, double below) {
  return {.from = from, .below = below, .widest_head = 256, .head_multiple = 8};
}
constexpr std::array kTransformerEngineAttention = {
    FlashKernel{.from = 8, .widest_head = 192, .head_multiple = 8},
    of_wide_heads(8, 8.1),
    of_wide_heads(9, 9.1),
    of_wide_heads(10, 11),
    of_wide_heads(12, 12.1),
};

/// By --grad-reduce-in-bf16, --use-precision-aware-optimizer with --exp-avg-dtype and
/// --exp-avg-sq-dtype, and --fp8-param-gather. Source: Megatron-LM d98e8a64,
/// megatron/training/arguments.py and core/optimizer/optimizer_config.py.
constexpr std::array<std::string_view, 12> kStateRecipes = {
    "bf16:adam-fp32-master", "bf16:adam-bf16-gradients", "bf16:adam-bf16-states",
    "bf16:precision-aware",  "fp8:adam-fp32-master",     "fp8:primary-weights",
    "fp8:bf16-gradients",    "fp8:precision-aware",      "mxfp8:adam-fp32-master",
    "mxfp8:bf16-gradients",  "nvfp4:adam-fp32-master",   "nvfp4:bf16-gradients"};

}  // namespace

Framework megatron_core() {
  Framework f;
  f.name = "megatron-core";
  f.kernels = KernelLibrary::megatron;
  f.source =
      "Megatron-Core with TransformerEngine: distributed optimizer shards master weights "
      "and moments, fp32 main gradients, one dummy weight gradient per GEMM shape; "
      "ZeRO-2/3 is Megatron-FSDP, priced without pipeline stages";
  f.dummy_weight_gradients = true;
  f.saves_fp8_inputs = true;  // TransformerEngine's Linear: inputmat is saved quantised
  // Since core_v0.13: "memory-efficient permutation", megatron/core/transformer/moe/README.md
  f.saves_expert_output = false;
  // TransformerEngine v2.9, pytorch/module/grouped_linear.py and common/gemm/cublaslt_gemm.cu,
  // multi_stream_cublas_gemm
  f.product_per_expert = true;
  f.unfused_scaled_rotation = true;  // megatron/core/models/common/embeddings/rope_utils.py
  for (const RecomputeModule module : kRecomputeModules) f.recompute_modules.insert(module);
  for (const OffloadModule module : kOffloadModules) f.offload_modules.insert(module);
  // d98e8a64, --experimental-attention-variant dsa
  f.sparse_attention = true;
  // d98e8a64, --use-varlen-dataset, inter_document_masking: cu_seqlens for the attention kernels
  f.packed_documents = true;
  f.flash_kernels = kTransformerEngineAttention;
  // Without flash attention TransformerEngine has no context parallelism (context_needs_flash):
  // TransformerEngine d0067d0d, pytorch/attention/dot_product_attention/utils.py:1169
  f.cp_ring = f.cp_all_to_all = f.cp_all_gather = true;
  f.context_of_recurrences = true;  // megatron/core/ssm: mamba_mixer.py, gated_delta_net
  f.expert_parallel = true;
  // Megatron-LM core_v0.16.1, megatron/core/model_parallel_config.py:414
  f.experts_take_tp = true;
  // megatron/core/transformer/moe/README.md: DeepEP since 0.12, HybridEP since 0.15, overlap of
  // the exchange since 0.14
  f.dispatchers[static_cast<std::size_t>(Dispatcher::allgather)] = true;
  f.dispatchers[static_cast<std::size_t>(Dispatcher::deepep)] = true;
  f.dispatchers[static_cast<std::size_t>(Dispatcher::hybridep)] = true;
  f.overlaps_experts = f.overlaps_shared_experts = true;  // --moe-shared-expert-overlap
  f.graphs_of_layers = f.graphs_of_step = true;
  // --mtp-num-layers, megatron/core/transformer/multi_token_prediction.py
  f.prediction_modules = true;
  f.trains_adapters = "Megatron-Bridge or NeMo";  // Megatron-LM's own scripts have none
  f.shards_over_dp_cp = true;
  f.rank_orders = true;
  f.microbatch_groups = true;  // --microbatch-group-size-per-virtual-pipeline-stage
  f.offload_optimizer = true;
  // --num-distributed-optimizer-instances, for Megatron-FSDP with --outer-dp-sharding-strategy
  f.hybrid_shard[1] = f.hybrid_shard[2] = f.hybrid_shard[3] = true;
  f.any_layout = true;            // --pipeline-model-parallel-layout
  f.gradients_as_reduced = true;  // one buffer of gradients; FSDP's shards stay fp32
  // Megatron-FSDP instead of DistributedDataParallel: --use-megatron-fsdp, --ckpt-format
  // fsdp_dtensor; docs of core/distributed/fsdp name tensor parallelism experimental.
  f.fsdp_is_another_wrapper = true;
  f.state_recipes = kStateRecipes;
  f.narrow_states_need_zero = true;
  f.defaults = kMegatronCoreDefaults;
  f.rules = kMegatronCoreRules;
  f.remark_rules = kMegatronCoreRemarks;
  return f;
}

}  // namespace echelon
