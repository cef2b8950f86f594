#include "planner/legality.hpp"

#include <fmt/format.h>

#include <algorithm>


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
    case too_few_layers: return "too-few-layers";
    case layers_not_divisible: return "layers-not-divisible";
    case microbatches_not_divisible: return "microbatches-not-divisible";
    case stack_lacks_feature: return "stack-lacks-feature";
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
    case sequence_not_divisible: return "sequence parallelism must divide the sequence length";
    case batch_not_divisible:
      return "the global batch must be a multiple of data parallel × microbatch";
    case too_few_layers: return "every pipeline chunk needs at least one layer";
    case layers_not_divisible:
      return "interleaved chunks must hold equal numbers of layers (embedding and loss may count as one each)";
    case microbatches_not_divisible:
      return "interleaving needs a number of microbatches that pp divides";
    case stack_lacks_feature: return "the chosen software stack does not offer it";
    case contradictory: return "two choices exclude each other";
    case memory: return "does not fit into GPU memory";
  }
  return "?";
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

Found check_degrees(const ClusterTopology& cluster, const ParallelPlan& p) {
  if (p.cp != 1 || p.ep != 1 || p.etp != 1) {
    return Rejection{stack_lacks_feature,
                     "context and expert parallelism are not priced by this version"};
  }
  if (p.gpus() != cluster.gpus()) {
    return Rejection{gpus_mismatch, fmt::format("tp {} × dp {} × pp {} = {} is not {} GPUs", p.tp,
                                                p.dp, p.pp, p.gpus(), cluster.gpus())};
  }
  if (p.shard_group < 1 || p.dp % p.shard_group != 0) {
    return Rejection{contradictory, fmt::format("shard group {} does not divide dp {}",
                                                p.shard_group, p.dp)};
  }
  return {};
}

Found check_shapes(const ModelSpec& model, const TrainingJob& job, const ParallelPlan& p) {
  if (Found found = check_tensor_parallel(model, p.tp)) return found;
  if (p.sequence_parallel && job.sequence % p.tp != 0) {
    return Rejection{sequence_not_divisible,
                     fmt::format("tp {} does not divide the sequence {}", p.tp, job.sequence)};
  }
  if (job.global_batch % (std::int64_t{p.dp} * p.microbatch) != 0) {
    return Rejection{batch_not_divisible,
                     fmt::format("global batch {} is not a multiple of dp {} × microbatch {}",
                                 job.global_batch, p.dp, p.microbatch)};
  }
  return {};
}

/// Equal chunks; the first and the last stage may hold one layer less (embedding and loss take its
/// place). Source: Megatron-LM --account-for-embedding/loss-in-pipeline-split.
bool equal_chunks(const ParallelPlan& p) {
  for (int stage = 0; stage < p.pp; ++stage) {
    const int layers = p.layers_per_stage[static_cast<std::size_t>(stage)];
    const bool end = stage == 0 || stage == p.pp - 1;
    if (layers % p.vpp != 0 && !(end && (layers + 1) % p.vpp == 0)) return false;
  }
  return true;
}

Found check_pipeline(const ModelSpec& model, const TrainingJob& job, const ParallelPlan& p) {
  if (model.layers < p.pp * p.vpp) {
    return Rejection{too_few_layers, fmt::format("{} layers for pp {} × vpp {} chunks",
                                                 model.layers, p.pp, p.vpp)};
  }
  if (static_cast<int>(p.layers_per_stage.size()) != p.pp) {
    return Rejection{contradictory, fmt::format("{} entries of layers per stage for pp {}",
                                                p.layers_per_stage.size(), p.pp)};
  }
  std::int64_t sum = 0;
  for (const int layers : p.layers_per_stage) {
    if (layers < p.vpp) {
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
  if (interleaved != (p.vpp > 1)) {
    return Rejection{contradictory, fmt::format("schedule {} with vpp {}", name_of(p.schedule),
                                                p.vpp)};
  }
  if (!interleaved) return {};
  if (p.pp == 1) return Rejection{contradictory, "interleaving needs pp > 1"};
  if (!equal_chunks(p)) {
    return Rejection{layers_not_divisible,
                     fmt::format("{} layers on pp {} × vpp {}", model.layers, p.pp, p.vpp)};
  }
  const std::int64_t m = p.microbatches_rounded_up(job.global_batch);
  if (m % p.pp != 0) {
    return Rejection{microbatches_not_divisible,
                     fmt::format("{} microbatches, pp {}", m, p.pp)};
  }
  return {};
}

Found check_stack(const Stack& stack, const ParallelPlan& p) {
  const auto lacks = [&](std::string what) {
    return Rejection{stack_lacks_feature, fmt::format("{} has no {}", stack.name, what)};
  };
  if (p.zero < 0 || p.zero > 3) {
    return Rejection{contradictory, fmt::format("ZeRO stage {}", p.zero)};
  }
  if (!stack.zero_allowed[p.zero]) return lacks(fmt::format("ZeRO-{}", p.zero));
  if (p.zero >= 2 && p.pp > 1 && !stack.zero23_with_pipeline) {
    return lacks(fmt::format("ZeRO-{} together with pipeline stages", p.zero));
  }
  if (p.vpp > 1 && !stack.interleaved) return lacks("interleaved schedule");
  if (p.schedule == ScheduleKind::zero_bubble_h1 && !stack.zero_bubble) {
    return lacks("zero-bubble schedule");
  }
  if (p.sequence_parallel && !stack.sequence_parallel) return lacks("sequence parallelism");
  if (p.sequence_parallel && p.tp == 1) {
    return Rejection{contradictory, "sequence parallelism needs tp > 1"};
  }
  if (!p.sequence_parallel && p.tp > 1 && stack.sequence_parallel_always) {
    return lacks("tensor parallelism without sequence parallelism");
  }
  return {};
}

Found check_recompute(const Stack& stack, const ParallelPlan& p) {
  if (p.recompute != Recompute::full) {
    for (const int k : p.recompute_layers) {
      if (k != 0) {
        return Rejection{contradictory, fmt::format("recomputed layers with recompute {}",
                                                    name_of(p.recompute))};
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
    const int uniform = std::min(p.recompute_layers[0], p.layers_per_stage[s]);
    if (!stack.per_stage_recompute && k < uniform) {
      return Rejection{stack_lacks_feature,
                       fmt::format("{} recomputes the same number of layers on every stage",
                                   stack.name)};
    }
  }
  return {};
}

}  // namespace

std::optional<Rejection> check_tensor_parallel(const ModelSpec& model, int tp) {
  if (model.moe.experts > 0) {
    return Rejection{stack_lacks_feature,
                     "mixture-of-experts models are not priced by this version"};
  }
  if (model.latent()) {
    return Rejection{stack_lacks_feature,
                     "multi-head latent attention is not priced by this version"};
  }
  if (model.heads % tp != 0) {
    return Rejection{heads_not_divisible,
                     fmt::format("tp {} does not divide {} attention heads", tp, model.heads)};
  }
  if (model.kv_heads % tp != 0 && tp % model.kv_heads != 0) {
    return Rejection{kv_heads_not_divisible,
                     fmt::format("tp {} and {} key/value heads", tp, model.kv_heads)};
  }
  if (model.ffn_hidden % tp != 0) {
    return Rejection{ffn_not_divisible,
                     fmt::format("tp {} does not divide the MLP width {}", tp, model.ffn_hidden)};
  }
  return {};
}

std::optional<Rejection> check_plan(const ModelSpec& model, const TrainingJob& job,
                                    const ClusterTopology& cluster, const Stack& stack,
                                    const ParallelPlan& plan) {
  if (Found found = check_degrees(cluster, plan)) return found;
  if (Found found = check_shapes(model, job, plan)) return found;
  if (Found found = check_pipeline(model, job, plan)) return found;
  if (Found found = check_stack(stack, plan)) return found;
  return check_recompute(stack, plan);
}

}  // namespace echelon
