// Memory of one stage where every block is allocated before the first step
// (Framework::fixed_blocks).
#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <vector>

#include "core/model/attention.hpp"
#include "costmodel/schedule/compute_order.hpp"
#include "costmodel/time/pipeline.hpp"
#include "costmodel/time/stage_model.hpp"

namespace echelon {
namespace {

/// Tensors of one boundary that a rank has buffers for at a time: its inputs wait for their
/// backward and arrive while the one before is in use; an output is made while the one before is on
/// its way; gradients are used as soon as they are there.
int boundary_buffers(const ParallelPlan& plan, int stage, int flying, std::int64_t microbatches) {
  const auto m = static_cast<int>(std::min<std::int64_t>(microbatches, 1 << 20));
  const int all = m * plan.vpp;
  const bool first = stage == 0;
  const bool last = stage + 1 == plan.pp;
  if (plan.pp == 1) return 0;
  if (plan.vpp > 1) {
    // The first rank's first chunk receives nothing, nor does the last rank's last one send.
    // With groups of more than pp microbatches, inputs of the first rank and gradients of the last
    // one arrive before the chunk's turn.
    const int group = plan.group_size();
    const int inputs = first ? (plan.vpp - 1) * group : flying + 2;
    const int early = stage + 1 == plan.pp ? group - plan.pp : 0;
    return std::min(all, inputs) + std::min(all, (first ? 5 : 6) + early);
  }
  const int receives = first ? 0 : std::min(flying + 1, m);
  const bool back_to_back = plan.schedule == ScheduleKind::gpipe && last;
  const int returns = first ? 0 : std::min(back_to_back ? 2 : 1, m);
  const int sends = last ? 0 : std::min(2, m) + 1;
  return receives + returns + sends;
}

/// Of attention's kernels, next to their operands.
Bytes attention_workspace(const ModelSpec& model, const ParallelPlan& plan, int sequence,
                          const AttentionMode& mode) {
  if (mode.parts <= Bytes{}) return {};
  AttentionShape shape;
  const bool by_heads = plan.cp_comm == CpComm::all_to_all;
  const int heads_cp = by_heads ? plan.cp : 1;
  shape.sequence = sequence / (by_heads ? 1 : plan.cp);
  shape.samples = plan.microbatch;
  shape.heads = model.heads / plan.tp / heads_cp;
  shape.kv_heads = std::max(1, model.kv_heads / plan.tp / heads_cp);
  shape.head_dim = model.head_dim;
  if (model.latent()) shape.v_head_dim = model.mla.v_head_dim;
  const std::optional<AttentionBackward> backward = plan_attention_backward(shape, mode);
  return backward ? backward->workspace : Bytes{};
}

}  // namespace

/// What one chunk saves of a microbatch: its layers' tapes; the input of a chunk that receives it
/// lies in a buffer of its own.
Bytes StageModel::saved_block(const Stage& chunk) const {
  Bytes saved = kept_by_layers(chunk);
  const bool has_input = first(chunk) || chunk.layers.total() == 0;
  if (!has_input) saved -= costs_.layer_input;
  if (last(chunk)) {
    saved += costs_.head_saved;
    if (chunk.layers.total() == 0 && plan_.pp > 1) saved -= costs_.layer_input;
  }
  return saved;
}

/// Buffers of saved activations, as many as chunks are in flight. A forward takes the first free
/// one (costmodel/schedule/buffer_allocation.cpp), and each is as large as the largest chunk it
/// serves. Groups of microbatches repeat: three of them and the last one are followed.
Bytes StageModel::saved_blocks(const Stage& stage) const {
  const int g = plan_.group_size();
  const std::int64_t flying =
      chunks_in_flight(plan_.schedule, plan_.pp, plan_.vpp, stage.index, microbatches_, g);
  std::vector<Bytes> saved;
  for (int c = 0; c < plan_.vpp; ++c) saved.push_back(saved_block(chunk_of(stage, c)));
  const Bytes largest = *std::ranges::max_element(saved);
  const bool equal = std::ranges::all_of(saved, [&](Bytes each) { return each == largest; });
  const std::int64_t last = microbatches_ % g;
  // Measured runs may pad what no group holds.
  const bool grouped = g <= microbatches_ && (last == 0 || last >= plan_.pp);
  if (equal || !grouped) return static_cast<double>(flying) * largest;
  const auto m = static_cast<int>(std::min<std::int64_t>(microbatches_ / g, 8) * g + last);
  std::vector<Bytes> buffers;
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> free;
  std::vector<std::size_t> used(static_cast<std::size_t>(m) * saved.size());
  for (const ComputeStep& step :
       compute_order({plan_.schedule, plan_.pp, plan_.vpp, m, g}, stage.index)) {
    const auto chunk = static_cast<std::size_t>(step.chunk);
    std::size_t& buffer =
        used[chunk * static_cast<std::size_t>(m) + static_cast<std::size_t>(step.microbatch)];
    if (step.op != Op::forward) {
      free.push(buffer);
      continue;
    }
    if (free.empty()) {
      free.push(buffers.size());
      buffers.emplace_back();
    }
    buffer = free.top();
    free.pop();
    buffers[buffer] = std::max(buffers[buffer], saved[chunk]);
  }
  Bytes sum;
  for (const Bytes each : buffers) sum += each;
  return sum;
}

/// The word embedding on a stage that holds a tied one; no ZeRO stage divides it.
double StageModel::tied_parameters(const Stage& stage) const {
  if (!cost_model_.model().tied_embeddings || !(first(stage) || last(stage))) return 0.0;
  return padded_vocab(cost_model_.model(), cost_model_.framework(), plan_.tp) / plan_.tp *
         cost_model_.model().hidden;
}

/// Buffers of the lowered schedule (docs/schedules.md), each held by one value at a time:
///
///   saved           saved_blocks()
///   boundaries      boundary_buffers()
///   batch           as saved, and two that are loaded ahead
///   weight inputs   ZB-H1: those of the weight gradients that stage s puts off, and one
Bytes StageModel::schedule_buffers(const Stage& stage) const {
  const double m = static_cast<double>(microbatches_);
  const auto flying = static_cast<double>(chunks_in_flight(
      plan_.schedule, plan_.pp, plan_.vpp, stage.index, microbatches_, plan_.group_size()));
  Bytes buffers = saved_blocks(stage);
  buffers += boundary_buffers(plan_, stage.index, static_cast<int>(flying), microbatches_) *
             costs_.layer_input;
  if (first(stage) || last(stage)) {
    constexpr double kBytesPerPosition = 8;
    const double tokens =
        static_cast<double>(plan_.microbatch) * cost_model_.job().sequence / plan_.cp;
    buffers += Bytes{std::min(flying + 2, m) * kBytesPerPosition * tokens};
  }
  if (plan_.schedule == ScheduleKind::zero_bubble_h1) {
    const double waiting = std::min(m, static_cast<double>(stage.index) + 1);
    const auto add = [&](const LayerCosts& layer, int LayerCounts::*kind) {
      buffers += waiting * (stage.layers.*kind * layer.weight_inputs +
                            stage.selective.*kind * layer.weight_inputs_selective +
                            stage.recomputed.*kind * layer.weight_inputs_full);
    };
    add(costs_.dense, &LayerCounts::dense);
    add(costs_.moe, &LayerCounts::moe);
  }
  return buffers;
}

/// What a running instruction needs: its transients, what it recomputes, normalised rows with their
/// mean and deviation; a whole sequence, and its gathered copy; the gradient that runs from layer
/// to layer.
Bytes StageModel::instruction_workspace(const Stage& stage) const {
  const Bytes turns = std::max({stage.layers.dense > 0 ? costs_.dense.transient : Bytes{},
                                stage.layers.moe > 0 ? costs_.moe.transient : Bytes{},
                                last(stage) ? costs_.head_transient : Bytes{}});
  Bytes recomputed;
  const auto recompute = [&](const LayerCosts& layer, int LayerCounts::*kind) {
    if (stage.recomputed.*kind > 0) {
      recomputed = std::max(recomputed, layer.saved - costs_.layer_input);
    } else if (stage.selective.*kind > 0) {
      recomputed = std::max(recomputed, layer.saved - layer.saved_selective);
    }
  };
  recompute(costs_.dense, &LayerCounts::dense);
  recompute(costs_.moe, &LayerCounts::moe);
  const bool splits = plan_.tp > 1 && plan_.sequence_parallel;
  const Bytes whole = (splits ? plan_.tp : 1) * costs_.layer_input;
  const double rows =
      costs_.layer_input.in(kByte) / (cost_model_.model().hidden * width_of(recipe_.compute));
  Bytes workspace = turns + recomputed + 2 * costs_.layer_input +
                    Bytes{2 * statistics_width(recipe_.compute) * rows} + (splits ? 2 : 1) * whole +
                    c_.gemm_workspace;
  if (stage.layers.total() > 0) {
    const AttentionMode mode{.deterministic = c_.attention_deterministic > 0,
                             .parts = c_.attention_parts,
                             .limit = attention_limit(cost_model_.cluster().gpu().memory)};
    workspace += attention_workspace(cost_model_.model(), plan_, cost_model_.job().sequence, mode);
  }
  return workspace;
}

/// What ZeRO moves. A unit is a layer; the first and the last hold the ends too. ZeRO-2/3 make a
/// unit's gradients in one of two blocks, the other being reduced; ZeRO-3 gathers units into two.
/// Of layers of both kinds each block fits the larger one; a stage of two such has one of each.
/// Experts that no other rank has are neither gathered nor reduced.
Bytes StageModel::zero_buffers(const Stage& stage, int zero) const {
  if (zero < 2) return {};
  const double tied = tied_parameters(stage);
  const double layers = stage.layers.total();
  const double moved_experts = plan_.ep == 1 || expert_shard_ > 1 ? costs_.moe.experts : 0;
  const double unit = std::max(stage.layers.dense > 0 ? costs_.dense.parameters : 0.0,
                               stage.layers.moe > 0 ? costs_.moe.parameters + moved_experts : 0.0);
  const double end_first = first(stage) ? costs_.embedding_parameters - tied : 0.0;
  double end_last = 0;
  if (last(stage)) {
    end_last = head_parameters(stage);
    if (!first(stage)) end_last -= tied;
  }
  const int units = std::max(1, *std::ranges::min_element(plan_.layers_per_stage) / plan_.vpp);
  const double each = unit * std::max(1.0, std::ceil(layers / plan_.vpp / units));
  const double largest = each + (units == 1 ? end_first + end_last : std::max(end_first, end_last));
  const bool zero_bubble = plan_.schedule == ScheduleKind::zero_bubble_h1;
  const double open = zero_bubble ? std::min(static_cast<double>(microbatches_),
                                             static_cast<double>(stage.index) + 1) *
                                        units
                                  : 1;
  Bytes buffers = Bytes{(open + 1) * largest * recipe_.main_gradient};
  buffers += Bytes{tied * recipe_.main_gradient};
  if (zero == 3) {
    // ZB-H1 gathers a unit again for its weight gradient.
    const double one = zero_bubble ? 2 * largest : largest;
    const bool differ = stage.layers.dense == 1 && stage.layers.moe == 1;
    const double both =
        differ ? costs_.dense.parameters + costs_.moe.parameters + moved_experts : 2 * each;
    const double gathered = units * plan_.vpp > 1 ? both + end_first + end_last : one;
    buffers += Bytes{gathered * recipe_.gathered_weight};
  }
  return buffers;
}

/// States, and the buffers above.
/// Source: runtime/training/cpu_device.cpp, states.cpp; runtime/model/chunk_layout.hpp.
/// Checked by: tests/runtime/predicted_memory_test.cpp (2 % of what is allocated).
MemoryBreakdown StageModel::block_memory(const Stage& stage) const {
  MemoryBreakdown out;
  const Parameters p = parameters(stage);
  const int shards = plan_.shard_group;
  const int zero = shards * expert_shard_ > 1 ? plan_.zero : 0;
  const double tied = tied_parameters(stage);
  const double all = p.replicated + p.experts;
  const double part = owned(p, zero > 0 ? plan_.zero : 4);
  out.weights = Bytes{(zero == 3 ? part + tied * (1 - 1.0 / shards) : all) * recipe_.weight};
  out.gradients = Bytes{(zero >= 2 ? part : all) * (recipe_.gradient + recipe_.main_gradient)};
  out.optimizer = Bytes{(zero >= 1 ? part : all) * (recipe_.master + recipe_.moments)};
  out.activations = schedule_buffers(stage);
  out.workspace = instruction_workspace(stage);
  out.communication = zero_buffers(stage, zero) + nccl_;
  out.context = c_.context;
  return out;
}

}  // namespace echelon
