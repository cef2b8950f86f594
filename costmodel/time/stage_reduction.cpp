// What one stage reduces and gathers over its data-parallel ranks (stage_model.hpp).
#include <algorithm>
#include <cmath>

#include "costmodel/time/rates.hpp"
#include "costmodel/time/stage_model.hpp"

namespace echelon {

/// A reduction is cut into buckets of max(40 M, 1 M · dp) parameters, or DDP's 25 MiB of 16-bit
/// gradients. Sources: Megatron-Core distributed_data_parallel_config, bucket_size; torch
/// DistributedDataParallel, bucket_cap_mb.
///
/// The plan's own size: whole layers of one chunk, as many as it holds and at least one; embedding
/// and head go with the layers next to them. What the lowered schedule reduces:
///   vpp · ⌈⌊layers / vpp⌋ / max(1, ⌊bucket / gradients of a layer⌋)⌉
/// Checked by: tests/costmodel/schedule/lower_plan_test.cpp, tests/loop/bucket_test.cpp.
double StageModel::buckets(const Stage& stage, double parameters) const {
  if (plan_.bucket) {
    const double layers = stage.layers.total();
    if (layers < 1) return plan_.vpp;
    const auto of = [&](const LayerCosts& each) {
      return freezes() ? each.adapters : each.parameters + each.experts;
    };
    const double all = stage.layers.dense * of(costs_.dense) + stage.layers.moe * of(costs_.moe);
    const Bytes layer{all / layers * recipe_.reduced_gradient};
    const double held = std::max(1.0, std::floor(*plan_.bucket / layer));
    const double of_chunk = std::max(1.0, std::floor(layers / plan_.vpp));
    return plan_.vpp * std::ceil(of_chunk / held);
  }
  if (cost_model_.framework().reduces_once(plan_)) return std::max(1, stage.layers.total());
  if (cost_model_.framework().reduces_in_ddp) {
    constexpr double kBucket = 25 * 1024 * 1024 / 2.0;
    return plan_.zero == 0 ? std::max(1.0, std::ceil(parameters / kBucket)) : 1.0;
  }
  return std::max(1.0, std::ceil(parameters / std::max(40e6, 1e6 * plan_.dp * plan_.cp)));
}

/// All-reduce (ZeRO-0) or reduce-scatter over the shard group and all-reduce over its replicas.
/// Every bucket of Megatron-Core's after the first pays the latency again. DDP's many do not: the
/// published runs of nanotron at ZeRO-0 show none of it (docs/accuracy-notes.md). Those of a size
/// that the plan sets do in every framework.
Seconds StageModel::reduce(const Stage& stage, double parameters, const GroupLinks& shard,
                           const GroupLinks& replicas) const {
  const Bytes payload{parameters * recipe_.reduced_gradient};
  const bool hidden = cost_model_.framework().reduces_in_ddp && !plan_.bucket;
  const double more = hidden ? 0.0 : buckets(stage, parameters) - 1;
  Seconds comm;
  if (plan_.zero == 0) {
    comm = all_reduce(payload, shard) + all_reduce(payload, replicas);
  } else {
    comm = reduce_scatter(payload, shard) + all_reduce(payload / shard.ranks, replicas);
  }
  return shard.ranks > 1 ? comm + more * (shard.base + ring_latency(shard, 1)) : comm;
}

/// Of everything a stage holds.
Seconds StageModel::reduce(const Stage& stage, const Parameters& p) const {
  const Seconds comm = reduce(stage, p.replicated, shard_, replicas_);
  if (p.experts <= 0) return comm;
  return comm + reduce(stage, p.experts, expert_shard_links_, expert_replicas_);
}

StageTraffic StageModel::traffic(const Stage& stage) const {
  const Parameters reduced = trained(stage);
  const Parameters p = plan_.zero == 3 ? parameters(stage) : reduced;
  StageTraffic out;
  out.gradients = Bytes{reduced.all() * recipe_.reduced_gradient};
  out.parameters = gathered(p.all(), p.quantized);
  out.saved = kept_by_layers(stage);
  if (first(stage)) out.saved += costs_.embedding_saved;
  if (last(stage)) out.saved += costs_.head_saved;
  out.buckets = buckets(stage, reduced.all());
  out.reduce = reduce(stage, reduced);
  out.gather = all_gather(gathered(p.replicated, p.quantized), shard_);
  if (p.experts > 0) {
    out.gather += all_gather(Bytes{p.experts * recipe_.gathered_weight}, expert_shard_links_);
  }
  return out;
}

/// Copies of a microbatch around ZeRO-2's and 3's collectives, in the stream of the compute
/// (UnitCopies), G bytes gathered, P parameters with gradients of w bytes, reduced in r. Where
/// parameters are split one by one:
///
///   gathered weights   2·G   read and written, at ZeRO-3 before the forward and the backward
///   gradients          P·(w + r); where they are reduced once, of m microbatches
///                      P·(w + 2r) as they are added up, but for the first one P·(w + r), and 2·P·r
///                      in the end
///
/// and of a flat parameter 2·P·w of gradients alone. Source: torch 2.15,
/// torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py (foreach_all_gather_copy_out,
/// foreach_reduce_scatter_copy_in), _fsdp_param.py (to_accumulated_grad_if_needed,
/// accumulate_unsharded_grad_if_needed), and fsdp/_flat_param.py (_get_unflat_views_unaligned).
/// Counted by tests/external/count_fsdp.py. Checked by: tests/costmodel/time/fsdp_copies_test.cpp.
StageModel::LayerTraffic StageModel::copies_of(Bytes gathered, double trained) const {
  const Framework& framework = cost_model_.framework();
  if (framework.unit_copies == UnitCopies::none || plan_.zero < 2 || !splits_states()) return {};
  const double width = activation_width(recipe_.compute);
  if (framework.unit_copies == UnitCopies::flat_gradient) {
    return {Seconds{}, Bytes{2 * width * trained} / memory_rate_};
  }
  const double reduced = recipe_.reduced_gradient;
  const double microbatches = static_cast<double>(microbatches_);
  const Seconds weights = 2 * gathered / memory_rate_;
  LayerTraffic out;
  if (!framework.keeps_gathered(plan_)) out.forward = weights;
  if (plan_.zero == 3) out.backward = weights;
  const double added = framework.reduces_once(plan_)
                           ? width + (2 - 1 / microbatches) * reduced + 2 * reduced / microbatches
                           : width + reduced;
  out.backward += Bytes{trained * added} / memory_rate_;
  return out;
}

StageModel::LayerTraffic StageModel::copies_of_ends(const Stage& stage) const {
  if (!first(stage) && !last(stage)) return {};
  const double ends = parameters(stage).ends;
  return copies_of(gathered(ends, 0), freezes() ? 0.0 : ends);
}

/// Buckets start as soon as the last microbatch's gradients are complete, so they overlap with the
/// rest of that backward pass; the last bucket cannot. With v chunks the first is done (v − 1)·g
/// chunk backwards before the last one starts, in groups of g microbatches; the chunks of DualPipeV
/// and DualPipe end together. ZeRO-2/3 reduced in every microbatch already, but for FSDP in a
/// pipeline, whose buckets are layers. In frameworks that reduce in DDP or all at once (nanotron) a
/// reduction over n ranks takes n·dp_rank_latency more, which nothing hides: published runs show
/// 0.4 ms per rank at ZeRO-0 and 1 (docs/accuracy-notes.md). Checked by:
/// tests/costmodel/time/stage_terms_test.cpp.
Seconds StageModel::reduction(const Stage& stage, const StageTimes& times) const {
  const bool holds_tied =
      !freezes() && cost_model_.model().tied_embeddings && (first(stage) || last(stage));
  const Seconds tied = holds_tied ? tied_sync_ : Seconds{};
  if (plan_.zero >= 2 && !cost_model_.framework().reduces_once(plan_)) return tied;
  const Parameters p = trained(stage);
  const Seconds comm = reduce(stage, p);
  const double after = plan_.schedule == ScheduleKind::interleaved ? plan_.group_size() : 0;
  const Seconds window = times.backward / plan_.vpp * (1.0 + (plan_.vpp - 1.0) * after);
  const bool overlaps = plan_.overlap_dp && cost_model_.framework().overlaps_dp;
  const Seconds last_bucket = comm / buckets(stage, p.all());
  const bool waits = cost_model_.framework().reduces_in_ddp && shard_.ranks > 1;
  const Seconds late = waits ? shard_.ranks * c_.dp_rank_latency : Seconds{};
  return tied + late +
         (overlaps ? std::max(exposed_beside(comm, window, c_, true), last_bucket) : comm);
}

/// ZeRO-1 and 2 gather updated parameters in the buckets of the reduction, beside the next forward:
///
///   max(comm − hidden, comm / n)   n buckets, of whole layers; the second where that forward
///   begins
///                                  when its first bucket is there
///
/// Published runs of frameworks with the overlap do not show the first bucket's wait. Checked by:
/// tests/costmodel/time/stage_terms_test.cpp.
Seconds StageModel::gather(const Stage& stage, const StageTimes& times) const {
  if (plan_.zero == 0 || !splits_states()) return Seconds{};
  const Parameters p = plan_.zero == 3 ? parameters(stage) : trained(stage);
  if (plan_.zero == 3) {  // the first unit has nothing to overlap with
    const LayerCosts& layer = stage.layers.dense > 0 ? costs_.dense : costs_.moe;
    const double ends = p.replicated - stage.layers.dense * costs_.dense.parameters -
                        stage.layers.moe * costs_.moe.parameters;
    return all_gather(gathered(layer.parameters + ends, layer.quantized), shard_);
  }
  const double more = buckets(stage, p.replicated) - 1;
  Seconds comm = all_gather(Bytes{p.replicated * recipe_.gathered_weight}, shard_);
  if (shard_.ranks > 1) comm += more * (shard_.base + ring_latency(shard_, 1));
  if (p.experts > 0) {
    comm += all_gather(Bytes{p.experts * recipe_.gathered_weight}, expert_shard_links_);
  }
  const Framework& framework = cost_model_.framework();
  const bool overlaps = plan_.overlap_dp && framework.overlaps_gather;
  const Seconds exposed = exposed_beside(comm, times.forward, c_, overlaps);
  if (!framework.awaits_first_gather) return exposed;
  const double pieces =
      std::min<double>(buckets(stage, p.replicated), std::max(1, stage.layers.total()));
  return std::max(exposed, comm / pieces);
}

}  // namespace echelon
