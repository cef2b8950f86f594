// Memory of one stage (stage_model.hpp): states, activations, buffers.
#include <algorithm>
#include <utility>
#include <vector>

#include "costmodel/time/pipeline.hpp"
#include "costmodel/time/stage_model.hpp"

namespace echelon {

/// Saved by all layers for one microbatch.
Bytes StageModel::kept_by_layers(const Stage& stage) const {
  const auto kept = [&](const LayerCosts& layer, const RecomputedPart& part,
                        const HostCopies& copies, int LayerCounts::*kind) {
    const int full = stage.recomputed.*kind;
    const int selective = stage.selective.*kind;
    return (stage.layers.*kind - full - selective) * (layer.saved - copies.plain) +
           selective * (layer.saved - part.freed - copies.selective) + full * costs_.layer_input;
  };
  return kept(costs_.dense, dense_part_, dense_copies_, &LayerCounts::dense) +
         kept(costs_.moe, moe_part_, moe_copies_, &LayerCounts::moe);
}

/// Of tensors that wait on the host, those of two layers are on the device: of the layer that runs,
/// and of the one whose copy is on its way. The last layer of all chunks never leaves it, which is
/// one of the two when its backward runs. Source: as copy_waits(); post_warmup_callback.
Bytes StageModel::copies_on_device(const Stage& stage) const {
  if (plan_.offload_modules.empty()) return {};
  const auto largest = [&](const HostCopies& copies, int LayerCounts::*kind) {
    const int selective = stage.selective.*kind;
    return std::max(stage.layers.*kind > selective ? copies.plain : Bytes{},
                    selective > 0 ? copies.selective : Bytes{});
  };
  const Bytes one = std::max(largest(dense_copies_, &LayerCounts::dense),
                             largest(moe_copies_, &LayerCounts::moe));
  return std::min(2.0, in_flight(stage) * stage.layers.total()) * one;
}

/// Microbatches whose activations a stage holds at its peak. Where a forward runs beside a
/// backward, its chunk is built while another's is freed: one more, or on a single stage, where
/// both advance layer by layer from the same moment, a layer more. Source: Megatron-LM d98e8a64,
/// core/pipeline_parallel/schedules.py, get_pp_rank_microbatches.
double StageModel::in_flight(const Stage& stage) const {
  if (plan_.pp == 1) return microbatches_in_flight(0, 1.0 / std::max(1, stage.layers.total()));
  return in_flight_[static_cast<std::size_t>(stage.index)];
}

/// `built`: of what is built while another is freed.
double StageModel::microbatches_in_flight(int stage, double built) const {
  const std::int64_t chunks = chunks_in_flight(plan_.schedule, plan_.pp, plan_.vpp, stage,
                                               microbatches_, plan_.group_size());
  const bool pairs = runs_both_ways(plan_.schedule);  // which are counted already
  const double held = static_cast<double>(chunks) + (plan_.overlap_ep && !pairs ? built : 0);
  return std::min(held, static_cast<double>(microbatches_ * plan_.vpp)) / plan_.vpp;
}

/// What captured graphs of layers keep besides the layers' tensors: static inputs and outputs and
/// the graph itself, one for the forward and one for the backward of each layer, and with pipeline
/// stages of each microbatch in flight. Source: Megatron-LM d98e8a64, docs/cuda_graph.md; about
/// 7 GB of DeepSeek-V3 on 256 GB200 (Megatron-Core MoE report, arXiv 2603.07685, as quoted), 60
/// layers of microbatches in flight: 58 MB each.
Bytes StageModel::graphs(const Stage& stage) const {
  const bool captured = cost_model_.framework().captures_layers;
  if (plan_.cuda_graphs != CudaGraphs::layers && !captured) return Bytes{};
  constexpr double kOfGraph = 58e6;
  const double copies = plan_.pp > 1 ? in_flight(stage) : 1.0;
  return Bytes{2 * kOfGraph * stage.layers.total() * copies};
}

/// What one chunk of the stage holds and recomputes: its part of the layers (layers_in_chunk).
/// Which of them are of which kind follows from the layer that it begins with; where that is not
/// known, each chunk has the same share of both. Recomputed are the stage's first layers where its
/// stages may differ (runtime: recomputed_layers), else equally many of each chunk (Megatron-LM:
/// recompute_num_layers counts within a chunk).
Stage StageModel::chunk_of(const Stage& stage, int chunk) const {
  const int v = plan_.vpp;
  if (v == 1) return stage;
  const LayerCounts& all = stage.layers;
  const bool loss = last(stage);
  const int size = layers_in_chunk(all.total(), v, loss, chunk);
  const bool own_first = cost_model_.framework().per_stage_recompute;
  int before = 0;
  if (own_first || (all.dense > 0 && all.moe > 0)) {  // else where a chunk begins changes nothing
    const int places = all.total() + (loss ? 1 : 0);  // the sum of layers_in_chunk() before it
    before = chunk * (places / v) + std::max(0, chunk - (v - places % v));
  }
  std::vector<int> begins;
  if (!stage.begins.empty()) begins = {stage.begins[static_cast<std::size_t>(chunk)]};
  const auto moe_before = [&](int layers) {
    if (all.moe == 0) return 0;
    if (all.dense == 0) return layers;
    if (begins.empty()) return layers * all.moe / all.total();
    const int first = begins.front();
    return cost_model_.moe_before(std::min(first + layers - before, cost_model_.model().layers)) -
           cost_model_.moe_before(first);
  };
  const auto counts = [&](int begin, int end) {
    const int moe = moe_before(end) - moe_before(begin);
    return LayerCounts{end - begin - moe, moe};
  };
  const auto of_chunk = [&](int layers) {
    const int wanted = own_first ? layers - before : (layers + v - 1) / v;
    return std::clamp(wanted, 0, size);
  };
  const int full = of_chunk(stage.recomputed.total());
  const int both = of_chunk(stage.recomputed.total() + stage.selective.total());
  return {.index = stage.index,
          .layers = counts(before, before + size),
          .recomputed = counts(before, before + full),
          .selective = counts(before + full, before + both),
          .chunk = chunk,
          .begins = std::move(begins)};
}

/// Microbatches of one chunk whose activations a stage s of DualPipeV holds when all its chunks in
/// flight are most, 2pp + 1: 2pp − s of the first, s + 1 of the second. They are reached by the
/// first pair of a forward and a backward. DualPipe, j = min(s, pp − 1 − s): pp − j of the chunk in
/// which microbatches have less far to come, j + 1 of the other. Source: compute_order.hpp. Checked
/// by: tests/costmodel/memory/dualpipe_memory_test.cpp, against the order instruction by
/// instruction.
double StageModel::dualpipe_in_flight(const Stage& stage, int chunk) const {
  const int s = stage.index;
  if (copies_ == 1) return chunk == 0 ? 2 * plan_.pp - s : s + 1;
  const int half = std::min(s, plan_.pp - 1 - s);
  return (chunk == 0) == (s == half) ? plan_.pp - half : half + 1;
}

/// Saved by the layers of all chunks in flight, when it is most. Chunks do not shrink from the
/// first to the last, but for the last stage's last one (layers_in_chunk). Layers of two kinds,
/// whose places among the chunks a stage does not know, count at their mean. Checked by:
/// tests/costmodel/memory/stage_memory_test.cpp, against the schedule's own count.
Bytes StageModel::kept_in_flight(const Stage& stage) const {
  const Bytes all = kept_by_layers(stage);
  if (plan_.vpp == 1 || stage.layers.total() == 0) return in_flight(stage) * all;
  if (copies_ > 1) {
    if (!stage.first_chunk) return in_flight(stage) * all;
    const auto& [layers, recomputed, selective] = *stage.first_chunk;
    const Bytes first_kept = kept_by_layers(
        {.index = stage.index, .layers = layers, .recomputed = recomputed, .selective = selective});
    return dualpipe_in_flight(stage, 0) * first_kept +
           dualpipe_in_flight(stage, 1) * (all - first_kept);
  }
  const bool two_kinds = stage.layers.dense > 0 && stage.layers.moe > 0;
  const auto kept = [&](int chunk) {
    if (!two_kinds) return kept_by_layers(chunk_of(stage, chunk));
    const int total = stage.layers.total();
    return all *
           (static_cast<double>(layers_in_chunk(total, plan_.vpp, last(stage), chunk)) / total);
  };
  if (plan_.schedule == ScheduleKind::dualpipe_v) {
    return dualpipe_in_flight(stage, 0) * kept(0) + dualpipe_in_flight(stage, 1) * kept(1);
  }
  const Bytes fullest = fullest_in_flight(all, kept(0), kept(plan_.vpp - 1), plan_.pp, plan_.vpp,
                                          stage.index, microbatches_, plan_.group_size());
  if (!plan_.overlap_ep) return fullest;
  return std::min(fullest + kept(0), static_cast<double>(microbatches_) * all);
}

/// Microbatches whose logits exist at once. All but GPipe run the loss's backward right after its
/// forward: one. Zero-bubble schedules, too: published peaks of ZB-1p lie one microbatch's logits
/// above those of 1F1B.
double StageModel::logits_in_flight(const Stage& stage) const {
  return plan_.schedule == ScheduleKind::gpipe ? in_flight(stage) : 1.0;
}

/// Buffers of ZeRO's gathers and reductions.
Bytes StageModel::gather_buffers(const Stage& stage, const Parameters& trained) const {
  const double all = trained.all();
  const double unit = largest_layer_;
  const double reduced = largest_trained_;
  switch (plan_.zero) {
    case 1:
      if (!splits_states()) return Bytes{};
      return Bytes{all * cost_model_.framework().zero1_gather_local +
                   owned(trained, 1) * cost_model_.framework().zero1_gather_shard};
    case 2:  // two layers' gradients on their way to the reduction
      return Bytes{std::min(all, 2 * reduced) * recipe_.reduced_gradient};
    case 3: {
      if (cost_model_.framework().keeps_gathered(plan_)) {  // a layer's gradients on their way
        const Parameters whole = parameters(stage);
        return gathered(whole.all(), whole.quantized) + Bytes{reduced * recipe_.reduced_gradient};
      }
      // Two gathered layers (running and prefetched), one layer's gradients before and during the
      // reduction, and the embedding and head, which stay gathered from forward to backward.
      double ends = first(stage) ? costs_.embedding_parameters : 0.0;
      if (last(stage)) ends += head_parameters(stage);
      return 2 * gathered(unit, largest_quantized_) +
             Bytes{reduced * recipe_.gathered_weight + reduced * recipe_.reduced_gradient +
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
  if (framework.pending_collective_buffers <= 0) return Bytes{};
  const double ahead = in_flight(stage) - framework.pending_after;
  if (ahead <= 0) return Bytes{};
  const Bytes one = stage.layers.dense * costs_.dense.held + stage.layers.moe * costs_.moe.held;
  const Bytes tensor = plan_.tp * costs_.layer_input;
  return c_.pending_collective_share * std::min(ahead * one, framework.pending_at_most * tensor);
}

/// Bytes that come and go, at the moment of the step when they are most. On top of what layers
/// keep of the microbatches in flight (K) and of buffers of buckets (B):
///
///   loss's backward      K + H + T + Z    H  logits and their gradients, on the last stage
///   a layer's backward   K + R + T + Z    R  the layer being recomputed, or all that its modules
///                                            freed; T its largest transient
///   optimizer's step     C + G            C  copies of gradients, G  ZeRO-1's gathered weights
///
/// Z are buffers of ZeRO-2/3 and tensors that wait for collectives. Where frozen units hold the
/// gradients of recomputed layers' inputs, K at a layer's backward has these, too. The logits are
/// gone before the first layer recomputes, and all activations before the step. T counts at both:
/// without it the allocated peaks of SimuMax's eight shapes on B200 are 0.8 % off instead of 0.4 %.
/// Source: order of a step in Megatron-LM core/pipeline_parallel/schedules.py and torchtitan's
/// train.py. Checked by: tests/costmodel/memory/stage_memory_test.cpp.
StageModel::Moving StageModel::largest_moment(const Stage& stage, const Parameters& p) const {
  const Framework& framework = cost_model_.framework();
  const Bytes zero = gather_buffers(stage, p);
  const Bytes buckets{std::min(p.all(), framework.bucket_buffers) * recipe_.reduced_gradient};
  const Bytes pending = held(stage) + (plan_.zero == 1 ? buckets : std::max(zero, buckets));
  Bytes kept = kept_in_flight(stage);
  if (first(stage)) {
    const bool both = runs_both_ways(plan_.schedule);
    const int chunk = stage.index == 0 ? 0 : 1;
    kept += (both ? dualpipe_in_flight(stage, chunk) : in_flight(stage)) * costs_.embedding_saved;
  }
  const bool has_moe = stage.layers.moe > 0;
  LayerCounts again = stage.recomputed;
  if (framework.selective_per_operator) again += stage.selective;

  const Bytes transient = std::max(stage.layers.dense > 0 ? costs_.dense.transient : Bytes{},
                                   has_moe ? costs_.moe.transient : Bytes{});
  Moving layer{.activations = kept,
               .workspace = transient + copies_on_device(stage),
               .communication = pending};
  Moving loss = layer;
  if (again.total() > 0) {
    layer.workspace += again.moe > 0 ? moe_saved_ : dense_saved_;
  } else if (stage.selective.total() > 0 && !framework.recompute_modules.empty()) {
    layer.workspace += std::max(stage.selective.dense > 0 ? dense_freed_ : Bytes{},
                                stage.selective.moe > 0 ? moe_freed_ : Bytes{});
  }
  if (freezes() && framework.holds_input_gradients && plan_.zero >= 2) {
    layer.activations += stage.recomputed.total() * costs_.layer_input;
  }
  if (last(stage)) {
    layer.activations += (logits_in_flight(stage) - 1) * costs_.head_saved;
    loss.activations += logits_in_flight(stage) * costs_.head_saved;
  }
  const double on_device = owned(p, 1) * (1 - plan_.offload_optimizer);
  const double stepped = plan_.zero == 3 ? std::min(on_device, framework.step_group) : on_device;
  const Moving step{.activations = {},
                    .workspace = Bytes{stepped * framework.step_copies[plan_.zero]},
                    .communication = buckets + (plan_.zero == 1 ? zero : Bytes{})};
  return std::max({layer, loss, step}, [](const Moving& a, const Moving& b) {
    return a.activations + a.workspace + a.communication <
           b.activations + b.workspace + b.communication;
  });
}

/// Frozen parameters P, of which Q are quantised, when ZeRO splits weights over s ranks:
///
///   (P − Q)/s · frozen_weight + Q · (payload/s + constants)
///
/// Source: core/plan/quantized_weights.hpp. Checked by:
/// tests/costmodel/operators/quantized_weights_test.cpp.
Bytes StageModel::frozen_weights(const Parameters& p, const Parameters& t, int from_zero) const {
  const TrainingJob& job = cost_model_.job();
  if (!freezes()) return {};
  const double packed = owned({.replicated = p.quantized}, from_zero);
  const double rest = owned(p, from_zero) - owned(t, from_zero) - packed;
  const double constants = job.quantized_weights ? job.quantized_weights->constants() : 0;
  return Bytes{rest * job.frozen_weight() + packed * QuantizedWeights::kPayload +
               p.quantized * constants};
}

MemoryBreakdown StageModel::memory(const Stage& stage) const {
  if (cost_model_.framework().fixed_blocks) return block_memory(stage);
  const Parameters p = parameters(stage);
  const Parameters t = freezes() ? trained(stage) : p;
  MemoryBreakdown out;
  // Bytes per parameter of the recipe, divided by the shard group from their ZeRO stage on.
  // Source: ZeRO (arXiv 1910.02054) section 3.
  const auto weights = [&](int from_zero) {
    return Bytes{owned(t, from_zero) * recipe_.weight} + frozen_weights(p, t, from_zero);
  };
  out.weights = weights(3);
  // FSDP that does not reshard: shards, which are the master, next to whole gathered weights.
  // Source: torch/distributed/fsdp/_fully_shard/_fsdp_param.py, _sharded_param_data and
  // _unsharded_param.
  if (plan_.zero == 2 && recipe_.master <= 0) {
    out.weights = weights(2) + gathered(p.all(), p.quantized);
  }
  if (plan_.zero < 3) {
    const double adapters = freezes() ? t.all() : 0.0;  // which stay in 16 bits
    out.weights += Bytes{(p.all() - p.ends - adapters) * cost_model_.job().layer_weight()};
  }
  const bool reduces =
      plan_.dp * plan_.cp * copies_ > 1 || cost_model_.framework().reduces_own_gradients;
  out.gradients = Bytes{owned(t, 2) * ((reduces ? recipe_.gradient : 0.0) + recipe_.main_gradient)};
  // FSDP in a pipeline, or without synchronisation: whole gradients until the last microbatch,
  // whose backward frees each for its shard. Source:
  // torch/distributed/fsdp/_fully_shard/_fsdp_param.py, unsharded_accumulated_grad;
  // _fsdp_param_group.py, post_backward; optim/optimizer.py, zero_grad (set_to_none=True).
  if (cost_model_.framework().reduces_once(plan_)) {
    out.gradients = std::max(out.gradients, Bytes{t.all() * recipe_.reduced_gradient});
  }
  out.optimizer =
      Bytes{owned(t, 1) * (recipe_.master + recipe_.moments) * (1 - plan_.offload_optimizer)};
  const Moving moving = largest_moment(stage, t);
  out.activations = moving.activations;
  out.workspace = moving.workspace + c_.gemm_workspace + graphs(stage);
  if (cost_model_.framework().dummy_weight_gradients && stage.layers.total() > 0 && !freezes()) {
    out.workspace += Bytes{2 * (stage.layers.moe > 0 ? moe_shapes_ : dense_shapes_)};
  }
  out.communication = moving.communication + nccl_;
  out.context = c_.context;
  return out;
}

/// P·(weight + gradients + states/shard) + gathers + workspace + full-sequence buffers b·s·h each.
/// Checked by: tests/evaluation/validate_test.cpp (static memory of published runs, 1 %).
Bytes StageModel::standing(const Stage& stage) const {
  const MemoryBreakdown all = memory(stage);
  const bool gathers = plan_.tp > 1 && plan_.sequence_parallel;
  Bytes sum = all.weights + all.gradients + all.optimizer + c_.gemm_workspace;
  if (plan_.zero == 1) sum += gather_buffers(stage, trained(stage));
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
