// Over 400 lines because the rules of a plan stand in one place, in the order they are asked.
#include "planner/space/legality.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/base/saturated_product.hpp"
#include "core/framework/stage_layers.hpp"

// Names fields of a plan one by one: each rule is about some of them.
namespace echelon {

std::string_view name_of(RejectionReason reason) {
  using enum RejectionReason;
  switch (reason) {
    case gpus_mismatch: return "gpus-mismatch";
    case heads_not_divisible: return "heads-not-divisible";
    case kv_heads_not_divisible: return "kv-heads-not-divisible";
    case ffn_not_divisible: return "ffn-not-divisible";
    case sequence_not_divisible: return "sequence-not-divisible";
    case batch_not_divisible: return "batch-not-divisible";
    case experts_not_divisible: return "experts-not-divisible";
    case RejectionReason::rank_order: return "rank-order";
    case RejectionReason::shard_group: return "zero-group-size";
    case too_few_layers: return "too-few-layers";
    case layers_not_divisible: return "layers-not-divisible";
    case microbatches_not_divisible: return "microbatches-not-divisible";
    case framework_lacks_feature: return "framework-lacks-feature";
    case no_price: return "no-price";
    case contradictory: return "contradictory";
    case memory: return "memory";
  }
  return "?";
}

std::string_view describe(RejectionReason reason) {
  using enum RejectionReason;
  switch (reason) {
    case gpus_mismatch: return "the degrees do not multiply to the number of GPUs";
    case heads_not_divisible: return "tensor parallelism must divide the attention heads";
    case kv_heads_not_divisible:
      return "tensor parallelism and the key/value heads must divide one another";
    case ffn_not_divisible: return "tensor parallelism must divide the MLP width";
    case sequence_not_divisible:
      return "context and sequence parallelism must divide the sequence length";
    case batch_not_divisible:
      return "the global batch must be a multiple of data parallel x microbatch";
    case experts_not_divisible:
      return "expert parallelism must divide the experts, and ep·etp the ranks of a stage";
    case RejectionReason::rank_order:
      return "a rank order with pp inside dp needs ep x etp = tp x cp, or, in a model without "
             "experts, cp = 1";
    case RejectionReason::shard_group:
      return "a ZeRO group must divide dp x cp, have more than one rank, and hold whole copies of "
             "the experts: dp x cp / zero-group-size must divide tp x cp x dp / (ep x etp)";
    case too_few_layers:
      return "every pipeline chunk needs at least one layer (the first and the last none where the "
             "framework allows it)";
    case layers_not_divisible:
      return "layers must be split over stages and chunks as the framework splits them";
    case microbatches_not_divisible:
      return "interleaving runs microbatches in groups of pp or more, the last of them whole or of "
             "at least pp; most frameworks only in groups of pp. dualpipev needs 2 x pp or more, "
             "dualpipe an even number of 2 x pp or more";
    case framework_lacks_feature: return "the chosen framework does not offer it";
    case no_price: return "a limit of this planner, whatever the framework offers";
    case contradictory: return "two choices exclude each other";
    case memory: return "does not fit into GPU memory";
  }
  return "?";
}

int fewest_layers(const Framework& framework, int pp, int vpp, int stage) {
  const bool end = stage == 0 || stage == pp - 1;
  return framework.any_layout && end && pp > 1 ? vpp - 1 : vpp;
}

bool groups_fill(std::int64_t microbatches, int pp, std::int64_t group) {
  if (group < pp || group > microbatches) return false;
  const std::int64_t last = microbatches % group;
  return last == 0 || last >= pp;
}

std::optional<int> smallest_group(std::int64_t microbatches, int pp, std::int64_t at_least) {
  if (microbatches < pp || microbatches > std::numeric_limits<int>::max()) return std::nullopt;
  std::int64_t group = std::clamp<std::int64_t>(at_least, pp, microbatches);
  while (!groups_fill(microbatches, pp, group)) ++group;  // all microbatches are a group
  return static_cast<int>(group);
}

std::vector<int> balanced_layers(int layers, int pp) {
  const int base = layers / pp;
  int extra = layers % pp;
  std::vector<int> split(static_cast<std::size_t>(pp), base);
  for (int stage = pp - 2; stage >= 1 && extra > 0; --stage, --extra) {
    ++split[static_cast<std::size_t>(stage)];
  }
  for (int stage = 0; extra > 0; ++stage, --extra) ++split[static_cast<std::size_t>(stage)];
  return split;
}

namespace {

using enum RejectionReason;
using Found = std::optional<Rejection>;

Rejection lacks_of(const Framework& framework, std::string what) {
  return {framework_lacks_feature, fmt::format("{} has no {}", framework.name, what)};
}

Found check_grid(const ClusterTopology& cluster, const ParallelPlan& p) {
  if (p.gpus() != cluster.gpus()) {
    const std::optional<std::int64_t> gpus = checked_product({p.tp, p.cp, p.dp, p.pp});
    return Rejection{
        gpus_mismatch,
        fmt::format("tp {} x cp {} x dp {} x pp {} = {} is not {} GPUs", p.tp, p.cp, p.dp, p.pp,
                    gpus ? std::to_string(*gpus) : "more than 9.2e18", cluster.gpus())};
  }
  return {};
}

/// Experts: the grid etp·ep·edp covers the ranks of one stage.
/// Source: Megatron-Core parallel_state (expert RankGenerator), MoE parallel folding.
Found check_experts(const ModelSpec& model, const Framework& framework, const ParallelPlan& p) {
  if (model.moe.experts == 0) {
    if (p.overlap_ep || p.overlap_shared) {
      return Rejection{contradictory,
                       "overlap of expert communication for a model without experts"};
    }
    if (p.ep == 1 && p.etp == 1) return {};
    return Rejection{contradictory,
                     fmt::format("expert parallelism for a model without experts (ep {} x etp {})",
                                 p.ep, p.etp)};
  }
  if (model.moe.experts % p.ep != 0) {
    return Rejection{experts_not_divisible,
                     fmt::format("ep {} does not divide {} experts", p.ep, model.moe.experts)};
  }
  if (model.moe.expert_ffn_hidden % p.etp != 0) {
    return Rejection{experts_not_divisible,
                     fmt::format("etp {} does not divide the expert width {}", p.etp,
                                 model.moe.expert_ffn_hidden)};
  }
  const bool overlaps = p.overlap_ep || p.overlap_shared;
  if (p.ep == 1 && (p.dispatcher != Dispatcher::alltoall || overlaps)) {
    return Rejection{contradictory, fmt::format("{} with ep 1: no token leaves its rank",
                                                overlaps ? "overlap of expert communication"
                                                         : "a token dispatcher")};
  }
  if (p.overlap_shared && model.moe.shared_ffn_hidden == 0) {
    return Rejection{contradictory, "overlap of shared experts: the model has none"};
  }
  const std::int64_t ranks = std::int64_t{p.tp} * p.cp * p.dp;
  if (ranks % (std::int64_t{p.ep} * p.etp) != 0) {
    return Rejection{
        experts_not_divisible,
        fmt::format("ep {} x etp {} does not divide the {} ranks of a stage", p.ep, p.etp, ranks)};
  }
  if (framework.experts_need_sequence_parallel && p.tp > 1 && !p.sequence_parallel) {
    return Rejection{contradictory, "experts with tp > 1 need sequence parallelism"};
  }
  return {};
}

/// Sparse attention (DSA): where one kernel makes the index scores. Elsewhere Megatron-LM makes
/// them of every row and key with an fp32 product and three passes per head, which has no price
/// here: where a rank's fp32 scores do not fit into one piece of 1 GiB, and where rows have bounds
/// of their own, of a slice of the sequence or of its documents. Only packed documents over context
/// parallelism have a kernel with bounds. Source: Megatron-LM d98e8a64, core/transformer/
/// experimental_attention_variant/dsa_cudnn_kernels.py, _indexer_topk_bshd,
/// _indexer_topk_from_score_chunks and _bytes_to_chunk_rows; dsa_masking.py,
/// build_dsattention_forward_mask.
Found check_index_scores(const TrainingJob& job, const ParallelPlan& p) {
  constexpr std::string_view kLoop =
      "whose index scores have no fused kernel in Megatron-LM (dsa_cudnn_kernels.py)";
  if (p.cp > 1) {
    if (job.documents) return {};
    return Rejection{no_price, fmt::format("cp {} with sparse attention (DSA) without packed "
                                           "documents, {}",
                                           p.cp, kLoop)};
  }
  if (job.documents) {
    return Rejection{
        no_price, fmt::format("packed documents with sparse attention (DSA) on cp 1, {}", kLoop)};
  }
  constexpr std::int64_t kPiece = std::int64_t{1} << 30;
  constexpr std::int64_t kRowsAtOnce = 512;
  const std::int64_t row = 4 * std::int64_t{p.microbatch} * job.sequence;
  std::int64_t rows = kPiece / row;
  if (rows >= kRowsAtOnce) rows -= rows % kRowsAtOnce;
  if (rows >= job.sequence) return {};
  return Rejection{no_price,
                   fmt::format("sparse attention (DSA) of {} x {} tokens, {}: a rank's scores "
                               "exceed 1 GiB",
                               p.microbatch, job.sequence, kLoop)};
}

/// Sparse attention (DSA): what its kernels take. Source: Megatron-LM d98e8a64, core/transformer/
/// experimental_attention_variant/dsa_cudnn_kernels.py, _flash_mla_head_padding and
/// _FLASH_MLA_REQUIRED_VALUE_DIM; without them PyTorch's own path keeps all scores. In bf16:
/// dsa.py, rotate_activation; FlashMLA's README, flash_mla_sparse_fwd.
Found check_sparse(const ModelSpec& model, const TrainingJob& job, const ClusterTopology& cluster,
                   const Framework& framework, const ParallelPlan& p) {
  if (!model.sparse()) return {};
  if (!framework.sparse_attention) {
    if (!framework.any_model) return lacks_of(framework, "sparse attention (DSA)");
    return Rejection{no_price, fmt::format("sparse attention (DSA) of transformers' module, which "
                                           "{} trains",
                                           framework.name)};
  }
  if (!job.flash_attention) {
    return Rejection{no_price, "sparse attention (DSA) without its fused kernels"};
  }
  const Dtype compute = job.precision.compute;
  if (compute == Dtype::fp16 || compute == Dtype::fp32 || compute == Dtype::fp64) {
    return lacks_of(framework, fmt::format("sparse attention (DSA) in {}: its kernels take bf16",
                                           job.precision.name));
  }
  constexpr double kHopper = 9;
  constexpr double kBlackwell = 10;
  const double capability = cluster.gpu().compute_capability;
  if (capability > 0 && capability < kHopper) {
    return Rejection{framework_lacks_feature,
                     fmt::format("sparse attention (DSA) on {}: its fused kernels need Hopper or "
                                 "later",
                                 cluster.gpu().name)};
  }
  constexpr int kValues = 512;
  if (model.mla.kv_lora_rank != kValues) {
    return Rejection{
        no_price, fmt::format("sparse attention (DSA) of latents {} wide, for which there are no "
                              "fused kernels: they take {}",
                              model.mla.kv_lora_rank, kValues)};
  }
  const int heads = std::max(1, model.heads / p.tp);
  const int unit = capability >= kBlackwell ? 128 : 64;
  if (heads % unit == 0 || unit % heads == 0) return check_index_scores(job, p);
  return Rejection{no_price,
                   fmt::format("sparse attention (DSA) with {} heads on a rank, for which there "
                               "are no fused kernels: they take divisors and multiples of {}",
                               heads, unit)};
}

/// Layers that only transformers' modules have, of which no tensor-parallel rank has a part.
Found check_modules_of_others(const ModelSpec& model, const Framework& framework,
                              const ParallelPlan& p) {
  const char* what = model.delta.channel_decay() ? "Kimi delta attention"
                     : model.ssm.beside_attention
                         ? "attention and a state space side by side in a layer"
                     : model.global.layers > 0
                         ? "full attention with heads of another shape than windowed attention's"
                     : model.conv.layers > 0  ? "gated short convolutions"
                     : model.value_norm       ? "a norm of the values"
                     : model.moe.branch_norms ? "norms of their own for routed and shared experts"
                                              : nullptr;
  if (what == nullptr) return {};
  if (!framework.any_model) {
    static const std::string others = frameworks_with(&Framework::any_model);
    return lacks_of(framework,
                    fmt::format("{}; transformers' module has: --framework {}", what, others));
  }
  if (p.tp == 1) return {};
  return Rejection{
      no_price,
      fmt::format("tp {} with {}, of which only whole layers have a price here", p.tp, what)};
}

/// Each context-parallel rank has whole heads of gated delta nets and of state spaces, the latter
/// with their groups. Source: Megatron-LM d98e8a64, megatron/core/ssm/gated_delta_net/common.py:631
/// and gdn.py:60; megatron/core/ssm/mamba_context_parallel.py, __init__.
Found check_context_of_recurrences(const ModelSpec& model, const Framework& framework,
                                   const ParallelPlan& p) {
  const auto undivided = [&](int heads, const char* what) {
    return Rejection{heads_not_divisible,
                     fmt::format("tp {} x cp {} does not divide {} {}", p.tp, p.cp, heads, what)};
  };
  if (model.delta.layers > 0) {
    if (!framework.context_of_recurrences) {
      return lacks_of(framework, "context parallelism of gated delta nets");
    }
    const int heads = model.delta.key_heads;
    if (heads % (p.tp * p.cp) != 0) return undivided(heads, "key heads of the gated delta nets");
  }
  if (model.ssm.layers > 0) {
    if (!framework.context_of_recurrences) {
      return lacks_of(framework, "context parallelism of state spaces");
    }
    const int heads = model.ssm.heads;
    if (heads % (p.tp * p.cp) != 0) return undivided(heads, "heads of the state spaces");
    const int groups = model.ssm.groups / p.tp;
    if (groups % p.cp != 0 && p.cp % groups != 0) {
      return Rejection{heads_not_divisible,
                       fmt::format("neither of cp {} and {} groups of the state spaces' heads on a "
                                   "tensor-parallel rank divides the other",
                                   p.cp, groups)};
    }
  }
  return {};
}

Found check_context(const ModelSpec& model, const TrainingJob& job, const Framework& framework,
                    const ParallelPlan& p) {
  if (p.cp == 1) return {};
  if (Found found = check_context_of_recurrences(model, framework, p)) return found;
  if (model.conv.layers > 0) {
    return Rejection{no_price, fmt::format("cp {} with gated short convolutions, whose exchange of "
                                           "tokens has no price here",
                                           p.cp)};
  }
  if (model.global.layers > 0) {
    return Rejection{no_price, fmt::format("cp {} with heads that differ between layers", p.cp)};
  }
  if (p.cp_comm == CpComm::all_gather && !model.sparse()) {
    // Megatron-LM has it: TransformerEngine, context_parallel.py, AttnFuncWithCPAndKVAllGather.
    return Rejection{no_price,
                     fmt::format("cp {} by all_gather without sparse attention (DSA)", p.cp)};
  }
  if (!job.flash_attention && framework.context_needs_flash) {
    return lacks_of(framework,
                    fmt::format("context parallelism (cp {}) without flash attention", p.cp));
  }
  const int slices = framework.slices_of(p.cp_comm);
  if (job.sequence % (std::int64_t{slices} * p.cp) != 0) {
    const std::string parts = slices > 1 ? fmt::format("{} x ", slices) : "";
    return Rejection{sequence_not_divisible, fmt::format("{}cp {} does not divide the sequence {}",
                                                         parts, p.cp, job.sequence)};
  }
  if (p.cp_comm != CpComm::all_to_all) return {};
  const int heads = p.tp * p.cp;
  if (model.heads % heads != 0) {
    return Rejection{heads_not_divisible,
                     fmt::format("tp {} x cp {} (all-to-all) does not divide {} attention heads",
                                 p.tp, p.cp, model.heads)};
  }
  if (model.kv_heads % heads != 0) {
    return Rejection{kv_heads_not_divisible,
                     fmt::format("tp {} x cp {} (all-to-all) does not divide {} key/value heads",
                                 p.tp, p.cp, model.kv_heads)};
  }
  return {};
}

Found check_shapes(const ModelSpec& model, const TrainingJob& job, const Framework& framework,
                   const ParallelPlan& p) {
  if (Found found = check_tensor_parallel(model, p.tp)) return found;
  if (Found found = check_context(model, job, framework, p)) return found;
  if (Found found = check_experts(model, framework, p)) return found;
  if (Found found = check_rank_order(model, p)) return found;
  if (p.sequence_parallel && job.sequence / p.cp % p.tp != 0) {
    return Rejection{sequence_not_divisible,
                     fmt::format("tp {} does not divide the {} tokens of a sequence on one rank",
                                 p.tp, job.sequence / p.cp)};
  }
  if (job.global_batch % (std::int64_t{p.dp} * p.microbatch) != 0) {
    return Rejection{batch_not_divisible,
                     fmt::format("global batch {} is not a multiple of dp {} x microbatch {}",
                                 job.global_batch, p.dp, p.microbatch)};
  }
  return {};
}

bool equal_chunks(const ParallelPlan& p) {
  return std::ranges::all_of(p.layers_per_stage, [&](int layers) {
    return layers == p.layers_per_stage.front() && layers % p.vpp == 0;
  });
}

/// Where the framework, not the user, deals the layers to stages.
Found check_dealt_layers(const ModelSpec& model, const Framework& framework,
                         const ParallelPlan& p) {
  if (p.vpp > 1 && p.copies() == 1) {
    if (framework.any_layout || equal_chunks(p)) return {};
    return Rejection{layers_not_divisible,
                     fmt::format("{} layers on pp {} x vpp {}", model.layers, p.pp, p.vpp)};
  }
  if (p.pp == 1 || framework.stage_layers == StageLayers::chosen) return {};
  const std::optional<std::vector<int>> dealt = dealt_layers(framework, model, p.pp);
  if (!dealt) {
    return Rejection{layers_not_divisible,
                     fmt::format("{} gives every stage as many layers: {} layers on pp {}",
                                 framework.name, model.layers, p.pp)};
  }
  if (*dealt == p.layers_per_stage) return {};
  return Rejection{layers_not_divisible,
                   fmt::format("{} gives the stages {} layers, not {}", framework.name,
                               fmt::join(*dealt, ","), fmt::join(p.layers_per_stage, ","))};
}

/// Of an interleaved plan.
Found check_groups(const Framework& framework, const ParallelPlan& p, std::int64_t microbatches) {
  const int group = p.microbatch_group > 1 ? p.microbatch_group : p.pp;
  if (group != p.pp && !framework.microbatch_groups) {
    return Rejection{framework_lacks_feature,
                     fmt::format("{} interleaves groups of pp = {} microbatches, not of {}",
                                 framework.name, p.pp, group)};
  }
  if (groups_fill(microbatches, p.pp, group)) return {};
  return Rejection{microbatches_not_divisible, fmt::format("{} microbatches in groups of {}, pp {}",
                                                           microbatches, group, p.pp)};
}

/// Source: deepseek-ai/DualPipe @3da1bbe, dualpipe/dualpipev.py: num_chunks >= num_ranks * 2;
/// dualpipe.py: num_ranks % 2 == 0, num_chunks % 2 == 0 as well. PyTorch,
/// torch/distributed/pipelining/schedules.py, ScheduleDualPipeV: two stages per rank, as many
/// microbatches as stages or more.
Found check_both_ways(const ParallelPlan& p, std::int64_t microbatches) {
  const std::string_view name = name_of(p.schedule);
  if (p.pp == 1) return Rejection{contradictory, fmt::format("{} needs pp > 1", name)};
  if (p.pp % p.copies() != 0) {
    return Rejection{contradictory,
                     fmt::format("pp {} with dualpipe, whose ranks s and pp - 1 - s hold the same "
                                 "two stages: it needs an even pp",
                                 p.pp)};
  }
  if (microbatches < 2 * std::int64_t{p.pp}) {
    return Rejection{microbatches_not_divisible,
                     fmt::format("{} microbatches for {}, which needs 2 x pp {} or more",
                                 microbatches, name, p.pp)};
  }
  if (microbatches % p.copies() == 0) return {};
  return Rejection{microbatches_not_divisible,
                   fmt::format("{} microbatches for dualpipe, which runs as many in each of two "
                               "directions and needs an even number",
                               microbatches)};
}

Found check_pipeline(const ModelSpec& model, const TrainingJob& job, const Framework& framework,
                     const ParallelPlan& p) {
  const int bare_ends =
      framework.any_layout && p.pp > 1 ? 2 : 0;  // embedding and loss without layers
  if (model.layers + bare_ends < p.model_stages()) {
    return Rejection{too_few_layers,
                     fmt::format("{} layers for pp {} x vpp {} chunks", model.layers, p.pp, p.vpp)};
  }
  if (static_cast<int>(p.layers_per_stage.size()) != p.pp) {
    return Rejection{contradictory, fmt::format("{} entries of layers per stage for pp {}",
                                                p.layers_per_stage.size(), p.pp)};
  }
  std::int64_t sum = 0;
  for (int stage = 0; stage < p.pp; ++stage) {
    const int layers = p.layers_per_stage[static_cast<std::size_t>(stage)];
    const int chunks = p.copies() > 1 ? 1 : p.vpp;  // of the stage's own layers
    if (layers < fewest_layers(framework, p.pp, chunks, stage)) {
      return Rejection{too_few_layers,
                       fmt::format("a stage of {} layers for vpp {}", layers, p.vpp)};
    }
    sum += layers;
  }
  if (sum != model.layers) {
    return Rejection{contradictory, fmt::format("layers per stage sum to {}, the model has {}", sum,
                                                model.layers)};
  }
  const bool interleaved = p.schedule == ScheduleKind::interleaved;
  const bool both_ways = runs_both_ways(p.schedule);
  if (both_ways ? p.vpp != 2 : interleaved != (p.vpp > 1)) {
    return Rejection{contradictory,
                     fmt::format("schedule {} with vpp {}", name_of(p.schedule), p.vpp)};
  }
  if (!interleaved && p.microbatch_group != 1) {
    return Rejection{contradictory, fmt::format("groups of {} microbatches without interleaving",
                                                p.microbatch_group)};
  }
  const std::int64_t microbatches = p.microbatches_rounded_up(job.global_batch);
  if (interleaved && p.pp == 1) return Rejection{contradictory, "interleaving needs pp > 1"};
  if (interleaved) return check_groups(framework, p, microbatches);
  if (!both_ways) return {};
  return check_both_ways(p, microbatches);
}

/// The rules of the framework's own table about a part of the plan.
Found check_rules(const ModelSpec& model, const PrecisionRecipe& precision,
                  const Framework& framework, RulePart part, const ParallelPlan& p) {
  const FrameworkRule* rule = broken_rule(framework, part, model, precision, p);
  if (rule == nullptr) return {};
  return lacks_of(framework, fmt::format("{} ({})", rule->what, rule->source));
}

/// What the framework offers of the axes inside a stage.
Found check_axes(const TrainingJob& job, const Framework& framework, const ParallelPlan& p) {
  const auto lacks = [&](std::string what) { return lacks_of(framework, std::move(what)); };
  if (p.tp > 1 && !framework.tensor_parallel) return lacks("tensor parallelism");
  if (p.pp > 1 && !framework.pipeline_parallel) return lacks("pipeline parallelism");
  if (p.pp > 1 && framework.pipeline_needs_own_model) {
    if (job.adapters) return lacks("pipeline stages of a model with PEFT's adapters (--lora)");
    if (job.layer_code != LayerCode::fused) {
      return lacks("pipeline stages of a model of transformers (--layer-code)");
    }
  }
  if (p.cp > 1 && !framework.offers_cp(p.cp_comm)) {
    return lacks(fmt::format("context parallelism by {}", name_of(p.cp_comm)));
  }
  if (p.ep * p.etp > 1 && !framework.expert_parallel) return lacks("expert parallelism");
  if (p.overlap_ep && !framework.overlaps_experts) return lacks("overlap of expert communication");
  if (p.overlap_shared && !framework.overlaps_shared_experts) {
    return lacks("overlap of shared experts with their exchange");
  }
  if (!offers_graphs(framework, job, p.cuda_graphs)) {
    const bool theirs = framework.offers(p.cuda_graphs);
    return lacks(fmt::format(
        "CUDA graphs of {}{}", p.cuda_graphs == CudaGraphs::layers ? "layers" : "a whole step",
        theirs ? " of a model of transformers or PEFT (--layer-code, --lora)" : ""));
  }
  if (p.sequence_parallel && !framework.sequence_parallel) return lacks("sequence parallelism");
  if (p.sequence_parallel && p.tp == 1) {
    return Rejection{contradictory, "sequence parallelism needs tp > 1"};
  }
  if (!p.sequence_parallel && p.tp > 1 && framework.sequence_parallel_always) {
    return lacks("tensor parallelism without sequence parallelism");
  }
  return {};
}

/// Numbers of ranks that DeepEP has a configuration for (takes_ranks).
constexpr std::array kDeepEpRanks = {2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 144, 160};
/// Ranks that its kernels between nodes take as one NVLink domain.
constexpr int kDeepEpDomain = 8;

bool has_configuration(int ranks) { return std::ranges::count(kDeepEpRanks, ranks) > 0; }

/// Whether a library of its own would carry tokens between NVLink domains, by NICs that it has no
/// kernels for.
bool lacks_nics(Dispatcher dispatcher, int ranks, const ClusterTopology& cluster) {
  if (dispatcher != Dispatcher::deepep && dispatcher != Dispatcher::hybridep) return false;
  return !cluster.node().has_mlx5() && cluster.group({ranks, 1}).domains > 1;
}

Found check_dispatcher(const Framework& framework, const ClusterTopology& cluster,
                       const ParallelPlan& p) {
  if (p.ep == 1) return {};
  if (!framework.offers(p.dispatcher)) {
    return lacks_of(framework, fmt::format("token dispatcher {}", name_of(p.dispatcher)));
  }
  if (!offers_dispatcher(framework, cluster, p.dispatcher)) {
    if (cluster.gpu().compute_capability <= 0) {
      return Rejection{no_price,
                       fmt::format("{} on {}: its kernels are CUDA's, and those of ROCm's "
                                   "ports (Primus-Turbo) have no price",
                                   name_of(p.dispatcher), cluster.gpu().name)};
    }
    return Rejection{contradictory,
                     fmt::format("{} on {}: its kernels need NVLink and Hopper or later",
                                 name_of(p.dispatcher), cluster.gpu().name)};
  }
  const int ranks = p.ep * p.etp;
  const auto among = [&](std::string why) {
    return Rejection{contradictory, fmt::format("{} among {} ranks (ep x etp): {}",
                                                name_of(p.dispatcher), ranks, why)};
  };
  const int domain = cluster.domain_gpus();
  if (lacks_nics(p.dispatcher, ranks, cluster)) {
    const NicKind kind = *cluster.node().nic_kind;
    return among(fmt::format(
        "between NVLink domains its kernels need InfiniBand or RoCE by mlx5 NICs, and those of {} "
        "are {}; an ep x etp that divides the {} GPUs of a domain stays inside, or alltoall",
        cluster.name(), name_of(kind), domain));
  }
  if (takes_ranks(p.dispatcher, ranks, cluster)) return {};
  if (has_configuration(ranks)) {
    return among(
        fmt::format("among domains of {} GPUs, joined by NVLink, it needs a multiple of {}", domain,
                    kDeepEpDomain));
  }
  return among(fmt::format("it has configurations for {}", fmt::join(kDeepEpRanks, ", ")));
}

/// What the framework offers of schedules and rank orders.
Found check_order(const Framework& framework, const ParallelPlan& p) {
  const auto lacks = [&](std::string what) { return lacks_of(framework, std::move(what)); };
  if (p.schedule == ScheduleKind::dualpipe_v) {
    if (!framework.dualpipe_v) return lacks("DualPipeV schedule");
  } else if (p.schedule == ScheduleKind::dualpipe) {
    if (!framework.dualpipe) return lacks("DualPipe schedule");
  } else if (p.vpp > 1 && !framework.interleaved) {
    return lacks("interleaved schedule");
  }
  if (p.schedule == ScheduleKind::zero_bubble_h1 && !framework.zero_bubble) {
    return lacks("zero-bubble schedule");
  }
  if (p.rank_order != RankOrder::dp_inside_pp && !framework.rank_orders) {
    return lacks(fmt::format("rank order {}", name_of(p.rank_order)));
  }
  if (p.overlap_pp && p.pp > 1 && !overlaps_messages(framework, p.schedule)) {
    return lacks(fmt::format("overlap of pipeline messages with schedule {}: it needs interleaving",
                             name_of(p.schedule)));
  }
  return {};
}

/// Every optimizer instance holds the experts once, split over its share of the ranks with the same
/// ones. Source: Megatron-LM d98e8a64, core/parallel_state.py: expert_data_parallel_size %
/// num_distributed_optimizer_instances == 0; torchtitan v0.2.2, distributed/parallel_dims.py:
/// dp_shard·cp·tp = efsdp·ep within each dp_replicate.
Found check_instances(const ModelSpec& model, const ParallelPlan& p) {
  if (model.moe.experts == 0 || p.zero == 0 || p.expert_dp() % p.instances() == 0) return {};
  return Rejection{
      RejectionReason::shard_group,
      fmt::format(
          "zero-group-size {} makes {} optimizer instances, which do not divide the {} ranks "
          "that hold the same experts",
          p.shard_group, p.instances(), p.expert_dp())};
}

/// A ZeRO group of one rank partitions nothing: every rank keeps all states and all-reduces its
/// gradients, which is ZeRO-0. Source: PyTorch, torch/distributed/fsdp/_init_utils.py,
/// _init_core_state: over one rank the strategies are NO_SHARD; torchtitan,
/// models/llama3/infra/parallelize.py: dp_replicate without dp_shard is DDP.
Found check_group_of_one(const ModelSpec& model, const ParallelPlan& p) {
  const int data = p.dp * p.cp;
  const std::int64_t expert_ranks = model.moe.experts > 0 ? p.expert_dp() / p.instances() : 1;
  if (p.zero == 0 || data == 1 || p.shard_group > 1 || expert_ranks > 1) return {};
  return Rejection{
      RejectionReason::shard_group,
      fmt::format("ZeRO-{} with zero-group-size 1 partitions nothing: the same plan is --zero 0",
                  p.zero)};
}

/// What the framework offers of ZeRO and offload.
Found check_zero(const ModelSpec& model, const PrecisionRecipe& precision,
                 const Framework& framework, const ParallelPlan& p) {
  const auto lacks = [&](std::string what) { return lacks_of(framework, std::move(what)); };
  const int data = p.dp * p.cp;
  if (p.shard_group < 1 || data % p.shard_group != 0) {
    return Rejection{
        RejectionReason::shard_group,
        fmt::format("zero-group-size {} does not divide dp {} x cp {}", p.shard_group, p.dp, p.cp)};
  }
  if (p.zero < 0 || p.zero > 3) {
    return Rejection{contradictory, fmt::format("ZeRO stage {}", p.zero)};
  }
  if (!framework.zero_allowed[p.zero]) return lacks(fmt::format("ZeRO-{}", p.zero));
  if (p.zero > 0 && p.shard_group != data && !framework.hybrid_shard[p.zero]) {
    return lacks(fmt::format("ZeRO-{} over a part of the data-parallel ranks", p.zero));
  }
  if (p.zero >= 2 && p.pp > 1 && !framework.zero23_with_pipeline) {
    return lacks(fmt::format("ZeRO-{} together with pipeline stages", p.zero));
  }
  if (p.zero == 3 && p.tp > 1 && !framework.zero3_with_tensor) {
    return lacks("ZeRO-3 together with tensor parallelism");
  }
  if (p.zero == 3 && p.ep > 1 && !framework.zero3_with_experts) {
    return lacks("ZeRO-3 together with expert parallelism");
  }
  if (Found found = check_instances(model, p)) return found;
  if (Found found = check_group_of_one(model, p)) return found;
  if (p.offload_optimizer > 0 && (!framework.offload_optimizer || p.zero < 1)) {
    return lacks(fmt::format("optimizer offload at ZeRO-{}", p.zero));
  }
  if (p.zero == 0 && precision.needs_distributed_optimizer && framework.narrow_states_need_zero) {
    return lacks("states of " + precision.name + " without its distributed optimizer (ZeRO-1)");
  }
  return {};
}

Found check_host_memory(const ModelSpec& model, const TrainingJob& job,
                        const ClusterTopology& cluster, const Framework& framework,
                        const ParallelPlan& p) {
  if (p.offload_optimizer <= 0) return {};
  const Bytes needed = offloaded_states(model, job, cluster, framework, p);
  const Bytes memory = cluster.node().cpu_memory;
  if (memory <= Bytes{}) {
    return Rejection{contradictory,
                     "offloaded states on nodes whose description does not say their cpu_memory"};
  }
  if (needed <= memory) return {};
  const double most = std::floor(100 * p.offload_optimizer * (memory / needed)) / 100;
  return Rejection{
      contradictory,
      fmt::format("offloaded states of {:.0f} GiB per node, whose CPU memory is {:.0f} GiB: at "
                  "most {:.0f} % of the optimizer",
                  needed.in(1_GiB), memory.in(1_GiB), 100 * most)};
}

/// Each stage's own numbers of full and selective layers.
Found check_mixed(const Framework& framework, const ParallelPlan& p) {
  if (!framework.mixed_recompute) {
    return lacks_of(framework,
                    "mix of full and selective recomputation: all layers are treated alike");
  }
  const auto stages = static_cast<std::size_t>(p.pp);
  if (p.recompute_layers.size() != stages || p.selective_layers.size() != stages) {
    return Rejection{contradictory,
                     fmt::format("{} and {} entries of recomputed layers for pp {}",
                                 p.recompute_layers.size(), p.selective_layers.size(), p.pp)};
  }
  for (std::size_t s = 0; s < stages; ++s) {
    const int full = p.recompute_layers[s];
    const int selective = p.selective_layers[s];
    if (full < 0 || selective < 0 || full + selective > p.layers_per_stage[s]) {
      return Rejection{contradictory,
                       fmt::format("{} fully and {} selectively recomputed layers on a stage of {}",
                                   full, selective, p.layers_per_stage[s])};
    }
  }
  return {};
}

/// All layers, where the framework recomputes all or none.
Found check_all_counted(const Framework& framework, const ParallelPlan& p) {
  if (framework.recomputes_some_layers(p.pp) || p.recompute_layers == p.layers_per_stage) return {};
  return lacks_of(framework, fmt::format("full recomputation of some layers only{}: of all or none",
                                         framework.counts_recomputed ? " on pipeline stages" : ""));
}

/// The same number of layers on every stage, and of a stage in every chunk.
/// Source: Megatron-LM d98e8a64, core/recompute.py and transformer/transformer_block.py:
/// recompute_num_layers counts within the layers of one chunk.
Found check_equal_counts(const Framework& framework, const ParallelPlan& p) {
  const int most = *std::max_element(p.recompute_layers.begin(), p.recompute_layers.end());
  const int down = most / p.vpp * p.vpp;
  const int up = (most + p.vpp - 1) / p.vpp * p.vpp;
  for (std::size_t s = 0; s < p.recompute_layers.size(); ++s) {
    const int k = p.recompute_layers[s];
    if (k != std::min(most, p.layers_per_stage[s])) {
      return Rejection{
          framework_lacks_feature,
          fmt::format("{} recomputes the same number of layers on every stage", framework.name)};
    }
    if (k != std::min(up, p.layers_per_stage[s])) {
      return Rejection{
          framework_lacks_feature,
          fmt::format(
              "{} recomputes the same number of layers of each of the {} chunks of a stage: "
              "{} or {} layers per stage, not {}",
              framework.name, p.vpp, down, up, most)};
    }
  }
  return {};
}

Found check_recompute(const ModelSpec& model, const TrainingJob& job, const Framework& framework,
                      const ParallelPlan& p) {
  if (Found found = check_policy(model, job, framework, p)) return found;
  if (p.recompute == Recompute::mixed) return check_mixed(framework, p);
  for (const int k : p.selective_layers) {
    if (k != 0) {
      return Rejection{contradictory, fmt::format("selectively recomputed layers with recompute {}",
                                                  name_of(p.recompute))};
    }
  }
  if (p.recompute != Recompute::full) {
    for (const int k : p.recompute_layers) {
      if (k != 0) {
        return Rejection{contradictory,
                         fmt::format("recomputed layers with recompute {}", name_of(p.recompute))};
      }
    }
    return {};
  }
  if (static_cast<int>(p.recompute_layers.size()) != p.pp) {
    return Rejection{contradictory, fmt::format("{} entries of recomputed layers for pp {}",
                                                p.recompute_layers.size(), p.pp)};
  }
  for (std::size_t s = 0; s < p.recompute_layers.size(); ++s) {
    const int k = p.recompute_layers[s];
    if (k < 0 || k > p.layers_per_stage[s]) {
      return Rejection{contradictory, fmt::format("{} recomputed layers on a stage of {}", k,
                                                  p.layers_per_stage[s])};
    }
  }
  if (Found found = check_all_counted(framework, p)) return found;
  return framework.per_stage_recompute ? Found{} : check_equal_counts(framework, p);
}

/// A bucket size that nothing would use.
Found check_bucket(const Framework& framework, const ParallelPlan& p) {
  const std::string why = p.bucket ? why_no_buckets(framework, p) : "";
  return why.empty() ? Found{} : Rejection{contradictory, "a bucket size with " + why};
}

}  // namespace

AdapterTargets usual_targets(const ModelSpec& model) {
  using enum AdapterTarget;
  if (model.moe.experts > 0) return {linear_qkv, linear_proj};
  return {linear_qkv, linear_proj, linear_fc1, linear_fc2};
}

std::optional<Rejection> check_adapters(const ModelSpec& model, const Adapters& adapters,
                                        const Framework& framework) {
  using enum AdapterTarget;
  if (framework.trains_adapters.empty()) {
    return lacks_of(framework, "training of adapters (LoRA): it trains all parameters");
  }
  const auto unpriced = [](std::string_view what) {
    return Rejection{no_price, fmt::format("adapters on {}", what)};
  };
  if (model.global.layers > 0) return unpriced("attention whose heads differ between layers");
  if (model.layers_with(TokenMixer::attention) != model.layers) {
    return unpriced("layers without attention");
  }
  if (framework.adapts_dense_alone && (model.latent() || model.moe.experts > 0)) {
    return lacks_of(framework, "adapters in models with experts or latent attention (MLA)");
  }
  if (model.latent() && adapters.targets.intersects({linear_qkv, linear_proj})) {
    return unpriced("latent attention (MLA)");
  }
  if (model.moe.experts > 0 && adapters.targets.intersects({linear_fc1, linear_fc2})) {
    return unpriced("experts (linear_fc1, linear_fc2)");
  }
  return {};
}

/// Source: Megatron-LM core_v0.16.1, core/transformer/transformer_config.py, __post_init__: modules
/// of latent attention and of grouped experts need them.
std::optional<Rejection> check_policy(const ModelSpec& model, const TrainingJob& job,
                                      const Framework& framework, const ParallelPlan& p) {
  using enum RecomputeModule;
  if (Found found = check_recompute_of_quantized(job, p)) return found;
  if (Found found = check_rules(model, job.precision, framework, RulePart::recomputation, p))
    return found;
  const RecomputeModules& asked = p.recompute_modules;
  if (asked.empty()) return {};
  if (p.recompute != Recompute::selective) {
    return Rejection{contradictory, fmt::format("recomputed modules {} with recompute {}",
                                                text_of(asked), name_of(p.recompute))};
  }
  RecomputeModules lacking;
  for (const RecomputeModule module : kRecomputeModules) {
    if (asked.contains(module) && !framework.recompute_modules.contains(module)) {
      lacking.insert(module);
    }
  }
  if (!lacking.empty()) {
    return lacks_of(framework, "recomputation of modules: " + text_of(lacking));
  }
  if (asked.contains(mla_up_proj) && !model.latent()) {
    return Rejection{contradictory,
                     "recomputation of mla_up_proj for a model without latent attention"};
  }
  if (asked.contains(moe_act) && model.moe.experts == 0) {
    return Rejection{contradictory, "recomputation of moe_act for a model without experts"};
  }
  return {};
}

/// Source: Megatron-LM d98e8a64, core/transformer/transformer_config.py, __post_init__ (attn_proj
/// shares its input with core_attn; nothing inside a recomputed layer of experts), and
/// docs/user-guide/features/fine_grained_activation_offloading.md (norms cross the boundaries of
/// graphs of layers). A fully recomputed layer keeps nothing but its input.
std::optional<Rejection> check_offload(const ModelSpec& model, const Framework& framework,
                                       const ParallelPlan& p) {
  using enum OffloadModule;
  const OffloadModules& asked = p.offload_modules;
  const auto broken = [&](std::string why) { return Rejection{contradictory, std::move(why)}; };
  if (asked.empty()) return {};
  OffloadModules lacking;
  for (const OffloadModule module : kOffloadModules) {
    if (asked.contains(module) && !framework.offload_modules.contains(module)) {
      lacking.insert(module);
    }
  }
  if (!lacking.empty()) return lacks_of(framework, "offload of activations: " + text_of(lacking));
  if (asked.contains(attn_proj) && !asked.contains(core_attn)) {
    return broken("offload of attn_proj without core_attn, whose output is its input");
  }
  if (asked.intersects({expert_fc1, moe_act}) && model.moe.experts == 0) {
    return broken(fmt::format("offload of {} for a model without experts", text_of(asked)));
  }
  if (p.recompute == Recompute::full || p.recompute == Recompute::mixed) {
    return broken(fmt::format("offload of {} with recompute {}: its layers keep nothing of them",
                              text_of(asked), name_of(p.recompute)));
  }
  if (asked.intersects({expert_fc1, moe_act}) &&
      p.recompute_modules.contains(RecomputeModule::moe)) {
    return broken(fmt::format("offload of {} inside recomputed moe", text_of(asked)));
  }
  if (asked.intersects({attn_norm, mlp_norm}) && p.cuda_graphs == CudaGraphs::layers) {
    return broken(
        fmt::format("offload of {} with CUDA graphs of layers, whose boundaries norms "
                    "cross",
                    text_of(asked)));
  }
  return {};
}

std::optional<Rejection> check_rank_order(const ModelSpec& model, const ParallelPlan& p) {
  if (p.rank_order == RankOrder::dp_inside_pp || p.pp == 1) return {};
  const auto order = [&] {
    return fmt::format("rank order {} with pp {}", name_of(p.rank_order), p.pp);
  };
  const bool experts = model.moe.experts > 0;
  if (experts && std::int64_t{p.ep} * p.etp != std::int64_t{p.tp} * p.cp) {
    return Rejection{
        RejectionReason::rank_order,
        fmt::format("{}: ep {} x etp {} is not tp {} x cp {}", order(), p.ep, p.etp, p.tp, p.cp)};
  }
  if (p.cp == 1) return {};
  // Megatron-Core takes cp > 1 where experts fill tp·cp; there dp·cp ranks lie at unequal
  // distances.
  return Rejection{
      RejectionReason::rank_order,
      fmt::format("{}: cp {} {}", order(), p.cp, experts ? "is not priced" : "is not 1")};
}

bool offers_graphs(const Framework& framework, const TrainingJob& job, CudaGraphs scope) {
  const bool theirs =
      framework.wraps_transformers && (job.adapters || job.layer_code != LayerCode::fused);
  return framework.offers(scope) && (scope == CudaGraphs::none || !theirs);
}

bool offers_dispatcher(const Framework& framework, const ClusterTopology& cluster,
                       Dispatcher dispatcher) {
  if (!framework.offers(dispatcher)) return false;
  if (dispatcher == Dispatcher::alltoall || dispatcher == Dispatcher::allgather) return true;
  constexpr double kHopper = 9;
  return cluster.gpu().compute_capability >= kHopper &&
         cluster.node().interconnect.starts_with("nv") &&
         cluster.node().interconnect != "nvlink-bridge";
}

bool takes_ranks(Dispatcher dispatcher, int ranks, const ClusterTopology& cluster) {
  if (lacks_nics(dispatcher, ranks, cluster)) return false;
  if (dispatcher != Dispatcher::deepep) return true;
  const int domain = cluster.domain_gpus();
  return has_configuration(ranks) && (ranks <= domain || domain % kDeepEpDomain == 0);
}

bool overlaps_messages(const Framework& framework, ScheduleKind schedule) {
  return schedule == ScheduleKind::interleaved || runs_both_ways(schedule) ||
         framework.overlaps_every_message;
}

std::optional<Rejection> check_tensor_parallel(const ModelSpec& model, int tp) {
  if (model.heads % tp != 0) {
    return Rejection{heads_not_divisible,
                     fmt::format("tp {} does not divide {} attention heads", tp, model.heads)};
  }
  if (model.kv_heads % tp != 0 && tp % model.kv_heads != 0) {
    return Rejection{kv_heads_not_divisible,
                     fmt::format("neither of tp {} and {} key/value heads divides the other", tp,
                                 model.kv_heads)};
  }
  if (model.delta.layers > 0 && model.delta.key_heads % tp != 0) {
    return Rejection{heads_not_divisible,
                     fmt::format("tp {} does not divide {} key heads of the gated delta nets", tp,
                                 model.delta.key_heads)};
  }
  if (model.ssm.layers > 0 && model.ssm.groups % tp != 0) {
    // Source: Megatron-LM d98e8a64, megatron/core/ssm/mamba_mixer.py.
    return Rejection{heads_not_divisible,
                     fmt::format("tp {} does not divide {} groups of the state spaces' heads", tp,
                                 model.ssm.groups)};
  }
  const bool has_dense = model.moe_layers() < model.layers;
  if (has_dense && model.ffn_hidden % tp != 0) {
    return Rejection{ffn_not_divisible,
                     fmt::format("tp {} does not divide the MLP width {}", tp, model.ffn_hidden)};
  }
  if (model.moe.shared_ffn_hidden % tp != 0) {
    return Rejection{ffn_not_divisible,
                     fmt::format("tp {} does not divide the width {} of the shared experts", tp,
                                 model.moe.shared_ffn_hidden)};
  }
  return {};
}

std::optional<Rejection> check_degrees(const ModelSpec& model, const TrainingJob& job,
                                       const ClusterTopology& cluster, const Framework& framework,
                                       const ParallelPlan& plan) {
  if (Found found = check_grid(cluster, plan)) return found;
  if (job.adapters) {
    if (Found found = check_adapters(model, *job.adapters, framework)) return found;
  }
  if (Found found = check_quantized_weights(model, job, framework)) return found;
  if (Found found = check_degrees_of_quantized(job, plan)) return found;
  if (Found found = check_sparse(model, job, cluster, framework, plan)) return found;
  if (Found found = check_modules_of_others(model, framework, plan)) return found;
  if (Found found = check_shapes(model, job, framework, plan)) return found;
  if (Found found = check_axes(job, framework, plan)) return found;
  if (Found found = check_dispatcher(framework, cluster, plan)) return found;
  return check_rules(model, job.precision, framework, RulePart::degrees, plan);
}

std::optional<Rejection> check_schedule(const ModelSpec& model, const TrainingJob& job,
                                        const Framework& framework, const ParallelPlan& plan) {
  if (job.adapters && plan.schedule == ScheduleKind::zero_bubble_h1) {
    return Rejection{
        contradictory,
        "a zero-bubble schedule with adapters: frozen weights have no gradients to put off"};
  }
  if (Found found = check_pipeline(model, job, framework, plan)) return found;
  if (Found found = check_order(framework, plan)) return found;
  if (Found found = check_dealt_layers(model, framework, plan)) return found;
  return check_rules(model, job.precision, framework, RulePart::schedule, plan);
}

Bytes offloaded_states(const ModelSpec& model, const TrainingJob& job,
                       const ClusterTopology& cluster, const Framework& framework,
                       const ParallelPlan& plan) {
  constexpr double kOffloaded = 16;
  const double replicas = static_cast<double>(plan.dp) * plan.cp / plan.shard_group;
  const std::int64_t trained =
      job.adapters ? adapter_parameters(model, *job.adapters, framework.adapts_each_module)
                   : model.parameters();
  return plan.offload_optimizer * Bytes{static_cast<double>(trained) * replicas * kOffloaded} /
         std::max(1, cluster.nodes());
}

std::optional<Rejection> check_sharding(const ModelSpec& model, const TrainingJob& job,
                                        const ClusterTopology& cluster, const Framework& framework,
                                        const ParallelPlan& plan) {
  if (Found found = check_zero(model, job.precision, framework, plan)) return found;
  if (Found found = check_zero_of_quantized(job, plan)) return found;
  if (Found found = check_rules(model, job.precision, framework, RulePart::sharding, plan))
    return found;
  return check_host_memory(model, job, cluster, framework, plan);
}

std::optional<Rejection> check_plan(const ModelSpec& model, const TrainingJob& job,
                                    const ClusterTopology& cluster, const Framework& framework,
                                    const ParallelPlan& plan) {
  if (Found found = check_degrees(model, job, cluster, framework, plan)) return found;
  if (Found found = check_schedule(model, job, framework, plan)) return found;
  if (Found found = check_sharding(model, job, cluster, framework, plan)) return found;
  if (Found found = check_bucket(framework, plan)) return found;
  if (Found found = check_offload(model, framework, plan)) return found;
  return check_recompute(model, job, framework, plan);
}

}  // namespace echelon
