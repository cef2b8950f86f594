// Memory of one stage (stage_model.hpp): states, activations, buffers.
#include <algorithm>

#include "costmodel/time/pipeline.hpp"
#include "costmodel/time/stage_model.hpp"

namespace echelon {

/// Saved by all layers for one microbatch.
Bytes StageModel::kept_by_layers(const Stage& stage) const {
  const auto kept = [&](const LayerCosts& layer, int LayerCounts::*kind) {
    const int full = stage.recomputed.*kind;
    const int selective = stage.selective.*kind;
    return (stage.layers.*kind - full - selective) * layer.saved +
           selective * layer.saved_selective + full * costs_.layer_input;
  };
  return kept(costs_.dense, &LayerCounts::dense) + kept(costs_.moe, &LayerCounts::moe);
}

/// Whole microbatches whose activations a stage holds at its peak.
double StageModel::in_flight(const Stage& stage) const {
  return static_cast<double>(chunks_in_flight(plan_.schedule, plan_.pp, plan_.vpp, stage.index,
                                              microbatches_, plan_.group_size())) /
         plan_.vpp;
}

/// What one chunk of the stage holds and recomputes: its part of the layers (layers_in_chunk); of
/// layers of two kinds the same share of each. Recomputed are the stage's first layers where its
/// stages may differ (runtime: recomputed_layers), else equally many of each chunk (Megatron-LM:
/// recompute_num_layers counts within a chunk). Its index is the stage's for the chunk with the
/// embedding or the loss, else that of a stage past the last.
Stage StageModel::chunk_of(const Stage& stage, int chunk) const {
  const int v = plan_.vpp;
  if (v == 1) return stage;
  const LayerCounts& all = stage.layers;
  const auto size_of = [&](int c) { return layers_in_chunk(all.total(), v, last(stage), c); };
  const int size = size_of(chunk);
  int before = chunk + 1 == v ? all.total() - size : 0;
  for (int c = 0; c < chunk && chunk + 1 < v; ++c) before += size_of(c);
  const auto moe_before = [&](int layers) {
    return all.total() > 0 ? layers * all.moe / all.total() : 0;
  };
  const auto counts = [&](int begin, int end) {
    const int moe = moe_before(end) - moe_before(begin);
    return LayerCounts{end - begin - moe, moe};
  };
  const bool own_first = cost_model_.framework().per_stage_recompute;
  const auto of_chunk = [&](int layers) {
    const int wanted = own_first ? layers - before : (layers + v - 1) / v;
    return std::clamp(wanted, 0, size);
  };
  const int full = of_chunk(stage.recomputed.total());
  const int both = of_chunk(stage.recomputed.total() + stage.selective.total());
  const bool end = (first(stage) && chunk == 0) || (last(stage) && chunk == v - 1);
  return {.index = end ? stage.index : plan_.pp,
          .layers = counts(before, before + size),
          .recomputed = counts(before, before + full),
          .selective = counts(before + full, before + both)};
}

/// Saved by the layers of all chunks in flight, when it is most. Chunks do not shrink from the
/// first to the last, but for the last stage's last one (layers_in_chunk). Layers of two kinds,
/// whose places among the chunks a stage does not know, count at their mean. Checked by:
/// tests/costmodel/memory/stage_memory_test.cpp, against the schedule's own count.
Bytes StageModel::kept_in_flight(const Stage& stage) const {
  const Bytes all = kept_by_layers(stage);
  if (plan_.vpp == 1 || stage.layers.total() == 0) return in_flight(stage) * all;
  const bool two_kinds = stage.layers.dense > 0 && stage.layers.moe > 0;
  const auto kept = [&](int chunk) {
    const Stage part = chunk_of(stage, chunk);
    if (!two_kinds) return kept_by_layers(part);
    return all * (static_cast<double>(part.layers.total()) / stage.layers.total());
  };
  return fullest_in_flight(all, kept(0), kept(plan_.vpp - 1), plan_.pp, plan_.vpp, stage.index,
                           microbatches_, plan_.group_size());
}

/// Activations saved by all microbatches in flight, and the logits of those past the head.
Bytes StageModel::activations(const Stage& stage) const {
  Bytes sum = kept_in_flight(stage);
  if (first(stage)) sum += in_flight(stage) * costs_.embedding_saved;
  if (last(stage)) {
    // All but GPipe run the loss's backward right after its forward: one microbatch. Zero-bubble
    // schedules, too: published peaks of ZB-1p lie one microbatch's logits above those of 1F1B.
    const bool soon = plan_.schedule != ScheduleKind::gpipe;
    sum += (soon ? 1.0 : in_flight(stage)) * costs_.head_saved;
  }
  return sum;
}

/// Buffers of ZeRO's gathers and reductions.
Bytes StageModel::gather_buffers(const Stage& stage, const Parameters& p) const {
  const double all = p.replicated + p.experts;
  const double unit = std::max(costs_.dense.parameters, costs_.moe.parameters + costs_.moe.experts);
  switch (plan_.zero) {
    case 1:
      if (plan_.shard_group * expert_shard_ == 1) return Bytes{};
      return Bytes{all * cost_model_.framework().zero1_gather_local +
                   owned(p, 1) * cost_model_.framework().zero1_gather_shard};
    case 2:  // two layers' gradients on their way to the reduction
      return Bytes{std::min(all, 2 * unit) * recipe_.reduced_gradient};
    case 3: {
      // Two gathered layers (running and prefetched), one layer's gradients before and during the
      // reduction, and the embedding and head, which stay gathered from forward to backward.
      double ends = first(stage) ? costs_.embedding_parameters : 0.0;
      if (last(stage)) {
        ends += plan_.pp > 1 ? costs_.head_parameters_last : costs_.head_parameters;
      }
      return Bytes{2 * unit * recipe_.gathered_weight +
                   unit * (recipe_.gathered_weight + recipe_.reduced_gradient) +
                   ends * recipe_.gathered_weight};
    }
    default: return Bytes{};
  }
}

/// Full-sequence tensors given to collectives that a host running ahead has not seen the end of:
///   c · min(pending_at_most · 2·b·s·h, sum over layers · (in flight − pending_after))
/// PyTorch's allocator frees a block used on another stream only when an event recorded there has
/// passed. Source: c10/cuda/CUDACachingAllocator.cpp (insert_events, process_events).
/// Checked by: tests/costmodel/memory/stage_memory_test.cpp.
Bytes StageModel::held(const Stage& stage) const {
  const Framework& framework = cost_model_.framework();
  const double ahead = in_flight(stage) - framework.pending_after;
  if (framework.pending_collective_buffers <= 0 || ahead <= 0) return Bytes{};
  const Bytes one = stage.layers.dense * costs_.dense.held + stage.layers.moe * costs_.moe.held;
  const Bytes tensor = plan_.tp * costs_.layer_input;
  return c_.pending_collective_share * std::min(ahead * one, framework.pending_at_most * tensor);
}

MemoryBreakdown StageModel::memory(const Stage& stage) const {
  if (cost_model_.framework().fixed_blocks) return block_memory(stage);
  const Parameters p = parameters(stage);
  MemoryBreakdown out;
  // Bytes per parameter of the recipe, divided by the shard group from their ZeRO stage on.
  // Source: ZeRO (arXiv 1910.02054) section 3.
  out.weights = Bytes{owned(p, 3) * recipe_.weight};
  const bool reduces = plan_.dp * plan_.cp > 1 || cost_model_.framework().reduces_own_gradients;
  out.gradients = Bytes{owned(p, 2) * ((reduces ? recipe_.gradient : 0.0) + recipe_.main_gradient)};
  out.optimizer =
      Bytes{owned(p, 1) * (recipe_.master + recipe_.moments) * (1 - plan_.offload_optimizer)};
  out.activations = activations(stage);
  const bool has_moe = stage.layers.moe > 0;
  const LayerCosts& widest = has_moe ? costs_.moe : costs_.dense;
  out.workspace = std::max(stage.layers.dense > 0 ? costs_.dense.transient : Bytes{},
                           has_moe ? costs_.moe.transient : Bytes{}) +
                  c_.gemm_workspace;
  LayerCounts again = stage.recomputed;
  if (cost_model_.framework().selective_per_operator) again += stage.selective;
  if (again.total() > 0) {  // the layer being recomputed
    out.workspace += again.moe > 0 ? costs_.moe.saved : costs_.dense.saved;
  }
  if (cost_model_.framework().dummy_weight_gradients && stage.layers.total() > 0) {
    out.workspace += Bytes{2 * (widest.parameters + widest.experts)};
  }
  // The copy of ZeRO-1's gather lives after the last backward, when no activation does.
  const Bytes gathers = gather_buffers(stage, p);
  out.communication = plan_.zero == 1 ? std::max(Bytes{}, gathers - out.activations) : gathers;
  out.communication += held(stage) + nccl_;
  out.context = c_.context;
  return out;
}

/// P·(weight + gradients + states/shard) + gathers + workspace + full-sequence buffers b·s·h each.
/// Checked by: tests/evaluation/validate_test.cpp (static memory of published runs, 1 %).
Bytes StageModel::standing(const Stage& stage) const {
  const MemoryBreakdown all = memory(stage);
  const bool gathers = plan_.tp > 1 && plan_.sequence_parallel;
  Bytes sum = all.weights + all.gradients + all.optimizer + c_.gemm_workspace;
  if (plan_.zero == 1) sum += gather_buffers(stage, parameters(stage));
  if (gathers) sum += cost_model_.framework().gather_buffers * plan_.tp * costs_.layer_input;
  return sum;
}

Bytes StageModel::allocated(const MemoryBreakdown& memory) const {
  return memory.total() - memory.context - nccl_;
}

/// Weights, gradients and states are allocated once and leave no gaps; what comes and goes does.
Bytes StageModel::reserved(const MemoryBreakdown& memory) const {
  const Bytes moving = memory.activations + memory.workspace + memory.communication - nccl_;
  return memory.total() + c_.allocator_reserve * moving;
}

}  // namespace echelon
